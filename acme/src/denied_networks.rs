//! Networks that are never connected to: addresses that a less trusted user may name but that only
//! we should reach (protection from SSRF).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use tokio::net::lookup_host;

/// Networks that are not on the public Internet: loopback, link-local (which includes the metadata
/// services of clouds), private networks (RFC 1918, RFC 4193, RFC 6598), multicast, and reserved
/// ones (RFC 6890).
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

/// Networks that are not connected to, and exceptions to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeniedNetworks {
    networks: Arc<[IpNet]>,
    allowed: Arc<[IpNet]>,
}

impl DeniedNetworks {
    /// Denies these networks.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self {
            networks: networks.into_iter().collect(),
            allowed: Arc::default(),
        }
    }

    /// Denies all networks that are not on the public Internet.
    pub fn private() -> Self {
        Self::new(Self::private_networks())
    }

    /// Returns the networks that are not on the public Internet.
    pub fn private_networks() -> impl Iterator<Item = IpNet> {
        PRIVATE
            .iter()
            .map(|network| network.parse().expect("a network"))
    }

    /// Sets the exceptions.
    pub fn allowing(self, allowed: impl IntoIterator<Item = IpNet>) -> Self {
        Self {
            allowed: allowed.into_iter().collect(),
            ..self
        }
    }

    /// Returns true if no network is denied.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Returns true if an address is denied, also where it is an IPv4 address embedded in an IPv6
    /// one.
    pub fn holds(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        fn is_denied(one: &IpAddr, networks: &Arc<[IpNet]>, allowed: &Arc<[IpNet]>) -> bool {
            is_in(networks, *one) && !is_in(allowed, *one)
        }
        // An exception for the IPv6 address includes the IPv4 address that it embeds.
        let inner = embedded(address)
            .into_iter()
            .filter(|_| !is_in(&self.allowed, address));
        is_denied(&address, &self.networks, &self.allowed)
            || inner
                .map(IpAddr::V4)
                .any(|one| is_denied(&one, &self.networks, &self.allowed))
    }

    /// Resolves `host:port` to the addresses that may be connected to. The caller connects to
    /// these: a second look-up could return others.
    pub(crate) async fn look_up(&self, target: &str) -> io::Result<Vec<SocketAddr>> {
        let found = lookup_host(target).await.map(Vec::from_iter);
        if self.is_empty() {
            return match found {
                Ok(found) if found.is_empty() => Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    format!("{target} has no address"),
                )),
                found => found,
            };
        }
        let allowed: Vec<SocketAddr> = found
            .unwrap_or_default()
            .into_iter()
            .filter(|address| !self.holds(address.ip()))
            .collect();
        if allowed.is_empty() {
            // Tenants must not learn whether a name exists in our network, nor its address: both
            // cases have one text.
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "{target} has no address outside of the networks that tenants may not name"
                ),
            ));
        }
        Ok(allowed)
    }
}

fn is_in(networks: &[IpNet], one: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&one))
}

/// Returns the IPv4 addresses that an IPv6 address may embed: compatible ones (RFC 4291, 2.5.5.1),
/// 6to4 (RFC 3056, 2), Teredo (RFC 4380, 4), ISATAP (RFC 5214, 6.1), and those of translators (RFC
/// 6052, 2.2), also with the prefix for local use, of any prefix length (RFC 8215). IPv4-mapped
/// addresses were converted before.
fn embedded(address: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = address else {
        return Vec::new();
    };
    let o = v6.octets();
    let last = at(12, 13, 14, 15, &o);
    let mut all = Vec::new();
    match o {
        // `::` and `::1` embed no IPv4 address.
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ..]
            if v6 != Ipv6Addr::UNSPECIFIED && v6 != Ipv6Addr::LOCALHOST =>
        {
            all.push(last);
        }
        [0x20, 0x02, ..] => all.push(at(2, 3, 4, 5, &o)),
        // Teredo: the client's address is written with its bits inverted.
        [0x20, 0x01, 0, 0, ..] => {
            all.extend([at(4, 5, 6, 7, &o), Ipv4Addr::from_bits(!last.to_bits())])
        }
        [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, ..] => all.push(last),
        [0, 0x64, 0xff, 0x9b, 0, 1, ..] => all.extend([
            at(6, 7, 9, 10, &o),
            at(7, 9, 10, 11, &o),
            at(9, 10, 11, 12, &o),
            last,
        ]),
        _ => {}
    }
    if matches!(o[8..12], [0 | 2, 0, 0x5e, 0xfe]) {
        all.push(last);
    }
    all
}

fn at(a: usize, b: usize, c: usize, d: usize, o: &[u8; 16]) -> Ipv4Addr {
    Ipv4Addr::new(o[a], o[b], o[c], o[d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks<const N: usize>(texts: [&str; N]) -> [IpNet; N] {
        texts.map(|text| text.parse().expect("a network"))
    }

    #[tokio::test]
    async fn denied_networks_are_found_in_every_form_of_an_address() {
        let denied = DeniedNetworks::new(networks([
            "127.0.0.0/8",
            "169.254.0.0/16",
            "::1/128",
            "fe80::/10",
            "10.96.0.0/12",
        ]));
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
        for address in [
            "127.9.9.9",
            "169.254.169.254",
            "::1",
            "fe80::1",
            "10.97.0.1",
        ]
        .into_iter()
        .chain(forms)
        {
            assert!(
                denied.holds(address.parse().expect("an address")),
                "{address}"
            );
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
            assert!(
                !denied.holds(address.parse().expect("an address")),
                "{address}"
            );
        }
        let refused = denied
            .look_up("127.0.0.1:443")
            .await
            .expect_err("it is denied");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(denied.look_up("192.0.2.1:443").await.is_ok());
        let known = denied
            .look_up("localhost:443")
            .await
            .expect_err("names are looked up first")
            .to_string();
        let unknown = denied
            .look_up("nothing.invalid:443")
            .await
            .expect_err("it has no address")
            .to_string();
        assert_eq!(
            known.replace("localhost", ""),
            unknown.replace("nothing.invalid", ""),
            "one text for both"
        );
        assert!(
            DeniedNetworks::default()
                .look_up("127.0.0.1:443")
                .await
                .is_ok()
        );
    }

    #[test]
    fn addresses_that_are_not_public_are_denied_except_for_allowed_ones() {
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
            assert!(
                denied.holds(address.parse().expect("an address")),
                "{address}"
            );
        }
        for address in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "192.0.2.1",
            "2606:4700::1111",
            "64:ff9b::1.1.1.1",
        ] {
            assert!(
                !denied.holds(address.parse().expect("an address")),
                "{address}"
            );
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
            assert_eq!(
                denied.holds(address.parse().expect("an address")),
                is_denied,
                "{address}"
            );
        }
    }
}
