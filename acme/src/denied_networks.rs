//! Where nothing is sent to: addresses that somebody less trusted than we are names, and that only we should reach.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use tokio::net::lookup_host;

/// Networks that are not on the public Internet: loopback, link-local (where clouds answer for their credentials), private networks
/// (RFC 1918, RFC 4193, RFC 6598), multicast, and what is nobody's (RFC 6890).
const PRIVATE: [&str; 20] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/128",
    "::1/128",
    "64:ff9b:1::/48",
    "100::/64",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];

/// Networks that are not connected to, and exceptions from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeniedNetworks {
    networks: Arc<[IpNet]>,
    allowed: Arc<[IpNet]>,
}

impl DeniedNetworks {
    /// These networks.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self { networks: networks.into_iter().collect(), allowed: Arc::default() }
    }

    /// Everything that is not on the public Internet.
    pub fn private() -> Self {
        Self::new(Self::private_networks())
    }

    /// The networks that are not on the public Internet.
    pub fn private_networks() -> impl Iterator<Item = IpNet> {
        PRIVATE.iter().map(|network| network.parse().expect("a network"))
    }

    /// But for these networks.
    pub fn allowing(self, allowed: impl IntoIterator<Item = IpNet>) -> Self {
        Self { allowed: allowed.into_iter().collect(), ..self }
    }

    /// Whether nothing is denied.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Whether an address lies in one of them, also where it is an IPv4 address in the form of an IPv6 one.
    pub fn holds(&self, address: IpAddr) -> bool {
        let is_in = |networks: &[IpNet], one: IpAddr| networks.iter().any(|network| network.contains(&one));
        let address = address.to_canonical();
        let is_denied = |one: &IpAddr| is_in(&self.networks, *one) && !is_in(&self.allowed, *one);
        // An exception for the address as it is written holds for what it stands for.
        let inner = embedded(address).into_iter().filter(|_| !is_in(&self.allowed, address));
        is_denied(&address) || inner.map(IpAddr::V4).any(|one| is_denied(&one))
    }

    /// The addresses of `host:port` that may be connected to. Whoever connects takes these: a second look could find others.
    pub(crate) async fn look_up(&self, target: &str) -> io::Result<Vec<SocketAddr>> {
        let found = lookup_host(target).await.map(Vec::from_iter);
        if self.is_empty() {
            return match found {
                Ok(found) if found.is_empty() => {
                    Err(io::Error::new(io::ErrorKind::NotFound, format!("{target} has no address")))
                }
                found => found,
            };
        }
        let allowed: Vec<SocketAddr> =
            found.unwrap_or_default().into_iter().filter(|address| !self.holds(address.ip())).collect();
        match allowed.is_empty() {
            // Whether a name is known here, and where it leads, stays our secret: one text for both.
            true => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{target} has no address outside of the networks that tenants may not name"),
            )),
            false => Ok(allowed),
        }
    }
}

/// The IPv4 addresses that an IPv6 address may stand for: compatible ones (RFC 4291, 2.5.5.1), 6to4 (RFC 3056, 2), Teredo (RFC
/// 4380, 4), ISATAP (RFC 5214, 6.1), and what translators make of one (RFC 6052, 2.2), also with the prefix that each network
/// may use in its own way (RFC 8215). Mapped ones have become IPv4 before.
fn embedded(address: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = address else { return Vec::new() };
    let o = v6.octets();
    let at = |a: usize, b: usize, c: usize, d: usize| Ipv4Addr::new(o[a], o[b], o[c], o[d]);
    let last = at(12, 13, 14, 15);
    let mut all = Vec::new();
    match o {
        // `::` and `::1` are no IPv4 addresses.
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ..] if v6 != Ipv6Addr::UNSPECIFIED && v6 != Ipv6Addr::LOCALHOST => {
            all.push(last);
        }
        [0x20, 0x02, ..] => all.push(at(2, 3, 4, 5)),
        // The client's is written with its bits turned over.
        [0x20, 0x01, 0, 0, ..] => all.extend([at(4, 5, 6, 7), Ipv4Addr::from_bits(!last.to_bits())]),
        [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, ..] => all.push(last),
        [0, 0x64, 0xff, 0x9b, 0, 1, ..] => all.extend([at(6, 7, 9, 10), at(7, 9, 10, 11), at(9, 10, 11, 12), last]),
        _ => {}
    }
    if matches!(o[8..12], [0 | 2, 0, 0x5e, 0xfe]) {
        all.push(last);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks<const N: usize>(texts: [&str; N]) -> [IpNet; N] {
        texts.map(|text| text.parse().expect("a network"))
    }

    #[tokio::test]
    async fn denied_networks_are_found_in_every_form_of_an_address() {
        let denied =
            DeniedNetworks::new(networks(["127.0.0.0/8", "169.254.0.0/16", "::1/128", "fe80::/10", "10.96.0.0/12"]));
        let forms = [
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "64:ff9b:1:a9fe:a9:fe00::",
            "2002:a9fe:a9fe::1",
            "2002:7f00:1::",
            "2001:0:a9fe:a9fe::1",
            "2001:0:102:304:0:0:5601:5601",
            "fd00::5efe:169.254.169.254",
            "2001:db8::200:5efe:169.254.169.254",
        ];
        for address in ["127.9.9.9", "169.254.169.254", "::1", "fe80::1", "10.97.0.1"].into_iter().chain(forms) {
            assert!(denied.holds(address.parse().expect("an address")), "{address}");
        }
        for address in [
            "192.0.2.1",
            "10.0.0.1",
            "2001:db8::1",
            "::ffff:192.0.2.1",
            "64:ff9b::192.0.2.1",
            "2002:c000:201::1",
            "::192.0.2.1",
            "2001:db8::a9fe:a9fe",
        ] {
            assert!(!denied.holds(address.parse().expect("an address")), "{address}");
        }
        let refused = denied.look_up("127.0.0.1:443").await.expect_err("it is denied");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(denied.look_up("192.0.2.1:443").await.is_ok());
        let known = denied.look_up("localhost:443").await.expect_err("names are looked up first").to_string();
        let unknown = denied.look_up("nothing.invalid:443").await.expect_err("it has no address").to_string();
        assert_eq!(known.replace("localhost", ""), unknown.replace("nothing.invalid", ""), "one text for both");
        assert!(DeniedNetworks::default().look_up("127.0.0.1:443").await.is_ok());
    }

    #[test]
    fn what_is_not_public_is_denied_but_for_what_is_allowed() {
        let denied = DeniedNetworks::private();
        for address in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.168.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "2002:a00:1::",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
        ] {
            assert!(denied.holds(address.parse().expect("an address")), "{address}");
        }
        for address in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "192.0.2.1", "2606:4700::1111", "64:ff9b::1.1.1.1"] {
            assert!(!denied.holds(address.parse().expect("an address")), "{address}");
        }
        let denied = denied.allowing(networks(["10.1.0.0/16", "fd00:1::/32", "64:ff9b:1:1::/64"]));
        for (address, is_denied) in [
            ("10.1.2.3", false),
            ("::ffff:10.1.2.3", false),
            ("2002:a01:203::", false),
            ("10.2.0.1", true),
            ("fd00:1::1", false),
            ("fd00:2::1", true),
            ("64:ff9b:1:1::10.0.0.1", false),
        ] {
            assert_eq!(denied.holds(address.parse().expect("an address")), is_denied, "{address}");
        }
    }
}
