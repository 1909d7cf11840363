//! An entry of the record of ownership: its subject, its owner, and its text in a ConfigMap. Pure.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use gatewright_core::model::Hostname;
use gatewright_core::pipeline::Pipeline;
use gatewright_core::tenancy::{self, Record};
use gatewright_core::translate::{self, Ownable, OwnerRecord};

/// The name prefixes of the ConfigMaps: for tenants of TenantGateways, and for addresses.
const TENANTS: &str = "gatewright-claims-";
const ADDRESSES: &str = "gatewright-owners-";
/// The prefix that replaces `*.` in the key of a ConfigMap, where `*` is not allowed; no hostname
/// has a `_`.
const WILDCARD: &str = "_.";
/// How often a ConfigMap can be split: the last ones have a 64-bit hash in their names.
const DEPTH: usize = 8;

/// The subject of an entry of the record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// A hostname, among the tenants of TenantGateways.
    Tenants(Hostname),
    /// Something that a namespace owns on addresses that namespaces share.
    Addresses(Ownable),
}

/// The recorded owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Tenant(Record),
    Namespace(OwnerRecord),
}

impl Owner {
    /// Returns the namespace that owns the entry.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Owner::Tenant(record) => &record.namespace,
            Owner::Namespace(record) => &record.namespace,
        }
    }
}

/// A change of the record, for the stage that reads it.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "changes are few and short-lived")]
pub enum Recorded {
    /// A change for tenancy.
    Tenancy(tenancy::Change),
    /// A change for translation.
    Translation(translate::Change),
}

impl Entry {
    /// Returns the names of the ConfigMaps that may have the entry: the first one, and those that
    /// take over when the one before is split. Each has one more byte of the hash of the subject.
    pub(super) fn path(&self) -> impl Iterator<Item = String> {
        let (mut name, subject) = match self {
            Entry::Tenants(hostname) => (TENANTS.to_owned(), hostname.as_str().to_owned()),
            Entry::Addresses(what) => (ADDRESSES.to_owned(), what.to_string()),
        };
        let digest = Sha256::digest(subject.as_bytes());
        (0..DEPTH).map(move |depth| {
            name.push_str(&format!("{:02x}", digest[depth]));
            name.clone()
        })
    }

    pub(super) fn key(&self) -> String {
        match self {
            Entry::Tenants(hostname) | Entry::Addresses(Ownable::Hostname(hostname)) => {
                key(hostname)
            }
            Entry::Addresses(Ownable::Port(port)) => {
                format!("_port.{}", port.to_string().replace('/', "."))
            }
            Entry::Addresses(Ownable::Socket(ip, port)) => {
                format!(
                    "_socket.{}.{}",
                    ip.to_string().replace(':', "_"),
                    port.to_string().replace('/', ".")
                )
            }
            // The text would be too long for a key, so the key is its digest; the value has the
            // full text.
            Entry::Addresses(what @ (Ownable::Admitted(..) | Ownable::Secret(_))) => {
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

    pub(super) fn value(&self, owner: &Owner) -> String {
        match (self, owner) {
            (Entry::Addresses(what), Owner::Namespace(owner)) => what.line(Some(owner)),
            (_, Owner::Namespace(owner)) => format!("{} {}", owner.since, owner.namespace),
            (
                _,
                Owner::Tenant(Record {
                    namespace,
                    since,
                    released: None,
                }),
            ) => format!("{since} {namespace}"),
            (
                _,
                Owner::Tenant(Record {
                    namespace,
                    since,
                    released: Some(released),
                }),
            ) => {
                format!("{since} {namespace} {released}")
            }
        }
    }

    /// Parses an entry of a ConfigMap; `None` where it is not ours.
    pub(super) fn parse(shard: &str, key: &str, value: &str) -> Option<(Self, Owner)> {
        if shard.starts_with(ADDRESSES) {
            let (what, owner) = Ownable::parse(value).ok()?;
            let entry = Entry::Addresses(what);
            let is_here = entry.key() == key && entry.path().any(|name| name == shard);
            return is_here.then_some((entry, Owner::Namespace(owner?)));
        }
        let hostname = match key.strip_prefix(WILDCARD) {
            Some(rest) => Hostname::parse(&format!("*.{rest}")),
            None => Hostname::parse(key),
        };
        let mut words = value.split(' ');
        let since = words.next()?.parse().ok()?;
        let namespace = Arc::from(words.next()?);
        let released = words.next().map(str::parse).transpose().ok()?;
        let record = Record {
            namespace,
            since,
            released,
        };
        let entry = Entry::Tenants(hostname.ok().filter(|hostname| !hostname.is_any())?);
        let is_here = entry.path().any(|name| name == shard);
        is_here.then_some((entry, Owner::Tenant(record)))
    }

    pub(super) fn recorded(&self, owner: Option<&Owner>) -> Recorded {
        match self {
            Entry::Tenants(hostname) => {
                let record = match owner {
                    Some(Owner::Tenant(record)) => Some(record.clone()),
                    Some(Owner::Namespace(_)) | None => None,
                };
                Recorded::Tenancy(tenancy::Change::Fact(tenancy::Fact::Recorded(
                    hostname.clone(),
                    record,
                )))
            }
            Entry::Addresses(what) => {
                let owner = match owner {
                    Some(Owner::Namespace(owner)) => Some(owner.clone()),
                    Some(Owner::Tenant(_)) | None => None,
                };
                Recorded::Translation(translate::Change::Fact(translate::Fact::Recorded(
                    what.clone(),
                    owner,
                )))
            }
        }
    }

    /// Returns the owner that the entry should have (`Some(None)`: the entry is to be removed);
    /// `None` where the record is right.
    pub(super) fn proposal(&self, pipeline: &Pipeline) -> Option<Option<Owner>> {
        match self {
            Entry::Tenants(hostname) => pipeline
                .tenancy()
                .proposal(hostname)
                .map(|record| record.cloned().map(Owner::Tenant)),
            Entry::Addresses(what) => pipeline
                .engine()
                .record_proposal(what)
                .map(|owner| owner.cloned().map(Owner::Namespace)),
        }
    }
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
    pub(super) fn covers(self, entry: &Entry) -> bool {
        match entry {
            Entry::Tenants(_) => self.tenants,
            Entry::Addresses(Ownable::Admitted(..)) => self.routes,
            Entry::Addresses(_) => self.addresses,
        }
    }
}

fn key(hostname: &Hostname) -> String {
    match hostname.as_str().strip_prefix("*.") {
        Some(rest) => format!("{WILDCARD}{rest}"),
        None if hostname.is_any() => "_any".to_owned(),
        None => hostname.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::{Transport, TransportPort};
    use gatewright_core::translate::ListenersOf;

    use super::*;

    fn host(text: &str) -> Hostname {
        Hostname::parse(text).expect("a hostname")
    }

    #[test]
    fn an_entry_is_read_as_it_was_written_and_is_a_key_that_a_config_map_takes() {
        let tenants = ["a.example.org", "*.example.org", "xn--bcher-kva.example"].map(|name| {
            (
                Entry::Tenants(host(name)),
                Owner::Tenant(Record {
                    namespace: "tenant-a".into(),
                    since: 42,
                    released: None,
                }),
            )
        });
        fn owner(protocol: Option<translate::Family>, released: Option<u64>) -> Owner {
            Owner::Namespace(OwnerRecord {
                namespace: "tenant-a".into(),
                since: 42,
                protocol,
                released,
            })
        }
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
        let addresses = [
            (Ownable::Hostname(host("a.example.org")), owner(None, None)),
            (
                Ownable::Hostname(host("*.example.org")),
                owner(None, Some(7)),
            ),
            (Ownable::Hostname(Hostname::any()), owner(None, None)),
            (
                Ownable::Port(TransportPort::tcp(8443)),
                owner(Some(translate::Family::Tls), None),
            ),
            (
                Ownable::Port(dns),
                owner(Some(translate::Family::Udp), None),
            ),
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
        ];
        let addresses = addresses
            .into_iter()
            .map(|(what, owner)| (Entry::Addresses(what), owner));
        for (entry, owner) in tenants.into_iter().chain(addresses) {
            let shard = entry.path().last().expect("a name");
            let key = entry.key();
            assert!(
                key.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')),
                "{key}"
            );
            let value = entry.value(&owner);
            if let Entry::Addresses(what) = &entry
                && what.hostname().is_some()
            {
                let bytes = (2 * key.len() + value.len()) as u64;
                let modelled = what.record_bytes("tenant-a");
                assert!(
                    bytes <= modelled && modelled < 2 * bytes,
                    "{value}: {bytes} {modelled}"
                );
            }
            assert_eq!(
                Entry::parse(&shard, &key, &value),
                Some((entry, owner)),
                "{value}"
            );
        }
        for (key, value) in [
            ("a.example.org", "tenant-a"),
            ("a.example.org", "x tenant-a"),
            ("", "1 a"),
            ("_.", "1 a"),
        ] {
            assert_eq!(
                Entry::parse("gatewright-claims-00", key, value),
                None,
                "{key} {value}"
            );
        }
        let line = Ownable::Port(TransportPort::tcp(81)).line(None);
        assert_eq!(
            Entry::parse("gatewright-owners-00", "_port.80", &line),
            None,
            "another key's"
        );
    }

    #[test]
    fn a_path_has_one_more_byte_of_the_hash_with_each_name() {
        let path: Vec<String> = Entry::Tenants(host("a.example.org")).path().collect();
        assert_eq!(path.len(), DEPTH);
        assert_eq!(path[0].len(), TENANTS.len() + 2, "{}", path[0]);
        for pair in path.windows(2) {
            assert!(
                pair[1].starts_with(&pair[0]) && pair[1].len() == pair[0].len() + 2,
                "{pair:?}"
            );
        }
    }
}
