//! Where nothing is sent to: addresses that somebody less trusted than we are names, and that only we should reach.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use tokio::net::lookup_host;

/// Networks that are not connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denied(Arc<[IpNet]>);

impl Denied {
    /// These networks.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self(networks.into_iter().collect())
    }

    /// Whether an address lies in one of them, also where it is an IPv4 address in the form of an IPv6 one: mapped (RFC 4291,
    /// 2.5.5.2), or what a translator makes of it (RFC 6052, 2.1).
    pub fn holds(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let inner = translated(address);
        self.0.iter().any(|network| [Some(address), inner].iter().flatten().any(|one| network.contains(one)))
    }

    /// The addresses of `host:port` that may be connected to. Whoever connects takes these: a second look could find others.
    pub(crate) async fn look_up(&self, target: &str) -> io::Result<Vec<SocketAddr>> {
        let found: Vec<SocketAddr> = lookup_host(target).await?.collect();
        let allowed: Vec<SocketAddr> = found.iter().copied().filter(|address| !self.holds(address.ip())).collect();
        match (found.is_empty(), allowed.is_empty()) {
            (true, _) => Err(io::Error::new(io::ErrorKind::NotFound, format!("{target} has no address"))),
            // Where it would have led stays our secret.
            (false, true) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{target} leads into a network that tenants may not name"),
            )),
            (false, false) => Ok(allowed),
        }
    }
}

/// The IPv4 address behind one of the well-known prefix `64:ff9b::/96`.
fn translated(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V6(v6) => match v6.octets() {
            [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
            _ => None,
        },
        IpAddr::V4(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn denied_networks_are_found_in_every_form_of_an_address() {
        let networks = ["127.0.0.0/8", "169.254.0.0/16", "::1/128", "fe80::/10", "10.96.0.0/12"];
        let denied = Denied::new(networks.map(|text| text.parse().expect("a network")));
        let mapped = ["::ffff:169.254.169.254", "64:ff9b::169.254.169.254"];
        for address in ["127.9.9.9", "169.254.169.254", "::1", "fe80::1", "10.97.0.1"].into_iter().chain(mapped) {
            assert!(denied.holds(address.parse().expect("an address")), "{address}");
        }
        for address in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "::ffff:192.0.2.1", "64:ff9b::192.0.2.1"] {
            assert!(!denied.holds(address.parse().expect("an address")), "{address}");
        }
        let refused = denied.look_up("127.0.0.1:443").await.expect_err("it is denied");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(denied.look_up("192.0.2.1:443").await.is_ok());
        assert!(denied.look_up("localhost:443").await.is_err(), "names are looked up first");
        assert!(Denied::default().look_up("127.0.0.1:443").await.is_ok());
    }
}
