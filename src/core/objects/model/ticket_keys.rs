//! Keys of session tickets (RFC 5077, RFC 8446), by which clients that return resume TLS sessions.

use std::fmt;
use std::sync::Arc;

use ring::hkdf::{HKDF_SHA256, KeyType, Salt};

use super::SecretName;

/// The size of a key that all hosts have in common, in bytes.
pub const TICKET_KEY_BYTES: usize = 32;

/// The size of the key of a host as Envoy takes it: a name and two keys, for HMAC and AES.
const HOST_KEY_BYTES: usize = 80;

/// The keys that all hosts have in common, from which those of each host are derived. Has no
/// `Debug` that prints them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TicketKeys(Arc<[[u8; TICKET_KEY_BYTES]]>);

impl TicketKeys {
    /// Wraps the key that encrypts new tickets, and others that decrypt tickets.
    pub fn new(current: [u8; TICKET_KEY_BYTES], others: &[[u8; TICKET_KEY_BYTES]]) -> Self {
        Self([&[current], others].concat().into())
    }

    /// The keys of a host whose listener is of a namespace. No other host has them, and no other
    /// namespace that has the host later.
    pub fn of_host(&self, name: SecretName, namespace: &str) -> TicketSecret {
        let info = format!("{namespace}\n{name}");
        let keys = self.0.iter().map(|key| derived(key, info.as_bytes()));
        TicketSecret {
            keys: keys.collect(),
            name,
        }
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[session ticket keys]")
    }
}

/// One SDS secret with the keys of a host's session tickets.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TicketSecret {
    /// The name in SDS.
    pub name: SecretName,
    /// The keys; the first encrypts.
    keys: Arc<[[u8; HOST_KEY_BYTES]]>,
}

impl TicketSecret {
    /// The keys, of which the first encrypts new tickets; only the code that sends them to Envoy
    /// calls it.
    pub fn expose(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(<[u8; HOST_KEY_BYTES]>::as_slice)
    }
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[session ticket keys {}]", self.name)
    }
}

/// The length of a host's key.
struct HostKey;

impl KeyType for HostKey {
    fn len(&self) -> usize {
        HOST_KEY_BYTES
    }
}

/// A key that is derived from another (RFC 5869).
fn derived(key: &[u8; TICKET_KEY_BYTES], info: &[u8]) -> [u8; HOST_KEY_BYTES] {
    let mut made = [0; HOST_KEY_BYTES];
    Salt::new(HKDF_SHA256, b"gatewright session tickets")
        .extract(key)
        .expand(&[info], HostKey)
        .and_then(|output| output.fill(&mut made))
        .expect("SHA-256 derives up to 8160 bytes");
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FrontendId, Hostname, ObjectName};

    fn secret(keys: &TicketKeys, port: u16, host: &str, namespace: &str) -> TicketSecret {
        let id = FrontendId::tcp(ObjectName::new("infra", "edge"), port);
        keys.of_host(
            SecretName::Tickets(id, Hostname::parse(host).expect("a hostname")),
            namespace,
        )
    }

    fn texts(secret: &TicketSecret) -> Vec<&[u8]> {
        secret.expose().collect()
    }

    #[test]
    fn each_host_port_and_namespace_has_keys_of_its_own() {
        let keys = TicketKeys::new([1; 32], &[[2; 32]]);
        let own = secret(&keys, 443, "a.org", "a");
        assert_eq!(own, secret(&keys, 443, "a.org", "a"), "they are stable");
        for other in [
            secret(&keys, 443, "b.org", "a"),
            secret(&keys, 443, "a.org", "b"),
            secret(&keys, 8443, "a.org", "a"),
            secret(&TicketKeys::new([3; 32], &[[4; 32]]), 443, "a.org", "a"),
        ] {
            for key in other.expose() {
                assert!(!texts(&own).contains(&key), "{other:?}");
            }
        }
    }

    #[test]
    fn a_key_that_moved_on_is_the_same_key() {
        let before = secret(&TicketKeys::new([1; 32], &[[2; 32]]), 443, "a.org", "a");
        let after = secret(&TicketKeys::new([2; 32], &[[1; 32]]), 443, "a.org", "a");
        let moved: Vec<&[u8]> = texts(&after).into_iter().rev().collect();
        assert_eq!(texts(&before), moved);
        assert!(texts(&before).iter().all(|key| key.len() == 80));
    }

    #[test]
    fn keys_are_not_printed() {
        let keys = TicketKeys::new([7; 32], &[]);
        assert_eq!(format!("{keys:?}"), "[session ticket keys]");
        let of_host = secret(&keys, 443, "a.org", "a");
        let name = "[session ticket keys sds/tickets@infra/edge:443/a.org]";
        assert_eq!(format!("{of_host:?}"), name);
    }
}
