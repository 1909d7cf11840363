//! An entry of the record of ownership: where it is among the ConfigMaps, and its text. Pure.

use sha2::{Digest, Sha256};

use gatewright_core::model::Hostname;
use gatewright_core::ownership::{Ownable, OwnerRecord};

/// The name prefix of the ConfigMaps.
const PREFIX: &str = "gatewright-owners-";
/// The prefix that replaces `*.` in the key of a ConfigMap, where `*` is not allowed; no hostname
/// has a `_`.
const WILDCARD: &str = "_.";
/// How often a ConfigMap can be split: the last ones have a 64-bit hash in their names.
const DEPTH: usize = 8;

/// Returns the names of the ConfigMaps that may have the entry of an item: the first one, and those
/// that take over when the one before is split. Each has one more byte of the hash of the item.
pub(super) fn path(what: &Ownable) -> impl Iterator<Item = String> + use<> {
    let mut name = PREFIX.to_owned();
    let digest = Sha256::digest(what.to_string().as_bytes());
    (0..DEPTH).map(move |depth| {
        name.push_str(&format!("{:02x}", digest[depth]));
        name.clone()
    })
}

/// Returns the key of the entry of an item.
pub(super) fn key(what: &Ownable) -> String {
    match what {
        Ownable::Hostname(hostname) => hostname_key(hostname),
        Ownable::Port(port) => format!("_port.{}", port.to_string().replace('/', ".")),
        Ownable::Socket(ip, port) => {
            format!(
                "_socket.{}.{}",
                ip.to_string().replace(':', "_"),
                port.to_string().replace('/', ".")
            )
        }
        // The text would be too long for a key, so the key is its digest; the value has the full
        // text.
        Ownable::Admitted(..) | Ownable::Secret(_) | Ownable::Tenant(_) => {
            let digest = Sha256::digest(what.to_string().as_bytes());
            format!(
                "_at.{}",
                digest[..16]
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<String>()
            )
        }
    }
}

/// Parses an entry of a ConfigMap; `None` where it is not ours.
pub(super) fn parse(shard: &str, named: &str, value: &str) -> Option<(Ownable, OwnerRecord)> {
    let (what, owner) = Ownable::parse(value).ok()?;
    let is_here = key(&what) == named && path(&what).any(|name| name == shard);
    is_here.then_some((what, owner?))
}

/// The entries whose inputs are completely known. Others are not written, since unclaimed entries
/// are removed from the record.
#[derive(Clone, Copy, Debug)]
pub struct CompleteInputs {
    /// TenantGateways and all objects that refer to them are known.
    pub tenants: bool,
    /// Gateways, ListenerSets and their classes are known.
    pub addresses: bool,
    /// These, and routes, are known.
    pub routes: bool,
}

impl CompleteInputs {
    pub(super) fn covers(self, what: &Ownable) -> bool {
        match what {
            Ownable::Tenant(_) => self.tenants,
            Ownable::Admitted(..) => self.routes,
            Ownable::Hostname(_) | Ownable::Port(_) | Ownable::Socket(..) | Ownable::Secret(_) => {
                self.addresses
            }
        }
    }
}

fn hostname_key(hostname: &Hostname) -> String {
    match hostname.as_str().strip_prefix("*.") {
        Some(rest) => format!("{WILDCARD}{rest}"),
        None if hostname.is_any() => "_any".to_owned(),
        None => hostname.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gatewright_core::model::{Family, Transport, TransportPort};
    use gatewright_core::ownership::ListenersOf;

    use super::*;

    fn host(text: &str) -> Hostname {
        Hostname::parse(text).expect("a hostname")
    }

    fn owner(protocol: Option<Family>, released: Option<u64>) -> OwnerRecord {
        OwnerRecord {
            namespace: "tenant-a".into(),
            since: 42,
            protocol,
            released,
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written_and_is_a_key_that_a_config_map_takes() {
        let dns = TransportPort {
            number: 53,
            transport: Transport::Udp,
        };
        fn at(place: &str) -> Arc<ListenersOf> {
            Arc::new(ListenersOf {
                namespace: "infra".into(),
                place: place.into(),
            })
        }
        let long = format!("{0}.{0}.{0}.example.org", "x".repeat(60));
        let tenants = [
            "a.example.org",
            "*.example.org",
            "xn--bcher-kva.example",
            &long,
        ];
        let tenants = tenants.map(|name| (Ownable::Tenant(host(name)), owner(None, None)));
        let others = [
            (Ownable::Hostname(host("a.example.org")), owner(None, None)),
            (
                Ownable::Hostname(host("*.example.org")),
                owner(None, Some(7)),
            ),
            (Ownable::Hostname(Hostname::any()), owner(None, None)),
            (
                Ownable::Port(TransportPort::tcp(8443)),
                owner(Some(Family::Tls), None),
            ),
            (Ownable::Port(dns), owner(Some(Family::Udp), None)),
            (
                Ownable::Socket([127, 0, 0, 1].into(), dns),
                owner(None, None),
            ),
            (
                Ownable::Socket([127, 0, 0, 1].into(), TransportPort::tcp(80)),
                owner(None, None),
            ),
            (
                Ownable::Socket("::1".parse().expect("an address"), TransportPort::tcp(80)),
                owner(None, None),
            ),
            (
                Ownable::Admitted(at("infra/edge"), host("a.example.org")),
                owner(None, Some(7)),
            ),
            (Ownable::Secret(host("a.example.org")), owner(None, None)),
            (
                Ownable::Admitted(at("shared"), Hostname::any()),
                owner(None, None),
            ),
            (Ownable::Tenant(host("a.example.org")), owner(None, Some(7))),
        ];
        for (what, owner) in tenants.into_iter().chain(others) {
            let shard = path(&what).last().expect("a name");
            let key = key(&what);
            assert!(
                key.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')),
                "{key}"
            );
            let value = what.line(Some(&owner));
            if what.hostname().is_some() {
                let bytes = (2 * key.len() + value.len()) as u64;
                let modelled = what.record_bytes("tenant-a");
                assert!(
                    bytes <= modelled && modelled < 2 * bytes,
                    "{value}: {bytes} {modelled}"
                );
            }
            assert_eq!(parse(&shard, &key, &value), Some((what, owner)), "{value}");
        }
    }

    #[test]
    fn an_entry_of_another_item_is_not_ours() {
        let what = Ownable::Port(TransportPort::tcp(81));
        let value = what.line(Some(&owner(None, None)));
        let shard = path(&what).next().expect("a name");
        assert!(parse(&shard, "_port.81", &value).is_some());
        assert_eq!(parse(&shard, "_port.80", &value), None, "another key's");
        let other = path(&Ownable::Port(TransportPort::tcp(80))).next();
        let other = other.expect("a name");
        assert_eq!(parse(&other, "_port.81", &value), None, "another place's");
        assert_eq!(parse(&shard, "_port.81", "42 tenant-a"), None, "no record");
        let removed = what.line(None);
        assert_eq!(parse(&shard, "_port.81", &removed), None, "no owner");
    }

    #[test]
    fn a_path_has_one_more_byte_of_the_hash_with_each_name() {
        let path: Vec<String> = path(&Ownable::Tenant(host("a.example.org"))).collect();
        assert_eq!(path.len(), DEPTH);
        assert_eq!(path[0].len(), PREFIX.len() + 2, "{}", path[0]);
        for pair in path.windows(2) {
            assert!(
                pair[1].starts_with(&pair[0]) && pair[1].len() == pair[0].len() + 2,
                "{pair:?}"
            );
        }
    }
}
