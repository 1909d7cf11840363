//! Addresses that no endpoint may have, in any notation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use ipnet::IpNet;

/// The addresses that endpoints may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPolicy {
    /// True if endpoints may be on the loopback interface: for backends on the machine of an Envoy
    /// that is not in a pod.
    pub loopback: bool,
    /// Networks that the installation's settings forbid.
    pub denied: Vec<IpNet>,
}

/// Networks that never contain backends, and their purpose.
const SPECIAL: [(&str, &str); 14] = [
    ("0.0.0.0/8", "unspecified"),
    ("::/128", "unspecified"),
    (
        "169.254.0.0/16",
        "link-local, where clouds keep credentials",
    ),
    ("fe80::/10", "link-local"),
    // AWS, Google, Alibaba, Oracle and Azure, besides 169.254.169.254.
    ("fd00:ec2::/32", "a metadata service of a cloud"),
    ("fd20:ce::254/128", "a metadata service of a cloud"),
    ("100.100.100.200/32", "a metadata service of a cloud"),
    ("192.0.0.192/32", "a metadata service of a cloud"),
    ("168.63.129.16/32", "a metadata service of a cloud"),
    ("224.0.0.0/4", "multicast"),
    ("ff00::/8", "multicast"),
    ("255.255.255.255/32", "broadcast"),
    ("127.0.0.0/8", LOOPBACK),
    ("::1/128", LOOPBACK),
];

const LOOPBACK: &str = "loopback";

impl Default for EndpointPolicy {
    fn default() -> Self {
        Self {
            loopback: true,
            denied: Vec::new(),
        }
    }
}

impl EndpointPolicy {
    /// Returns why no endpoint may have an address; `None` if endpoints may have it.
    pub(super) fn refuses(&self, address: IpAddr) -> Option<String> {
        static NETWORKS: LazyLock<Vec<(IpNet, &str)>> = LazyLock::new(|| {
            SPECIAL
                .map(|(network, what)| (network.parse().expect("the table has networks"), what))
                .to_vec()
        });
        forms(address)
            .find_map(|form| {
                let (_, what) = NETWORKS
                    .iter()
                    .find(|(network, _)| network.contains(&form))?;
                (*what != LOOPBACK || !self.loopback).then(|| (*what).to_owned())
            })
            .or_else(|| {
                forms(address).find_map(|form| {
                    let network = self.denied.iter().find(|network| network.contains(&form))?;
                    Some(format!(
                        "in {network}, which --denied-endpoint-networks has"
                    ))
                })
            })
    }
}

/// An address and the IPv4 addresses that it leads to: an IPv6 address can embed one in many ways.
pub(super) fn forms(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let canonical = address.to_canonical();
    let embedded = match canonical {
        IpAddr::V4(_) => [None; 3],
        IpAddr::V6(v6) => embedded(v6),
    };
    std::iter::once(canonical).chain(embedded.into_iter().flatten().map(IpAddr::V4))
}

fn embedded(address: Ipv6Addr) -> [Option<Ipv4Addr>; 3] {
    let octets = address.octets();
    match (address.segments(), octets) {
        // IPv4-compatible (RFC 4291, 2.5.5.1); `::` and `::1` are none.
        ([0, 0, 0, 0, 0, 0, high, low], _) if (high, low) != (0, 0) && (high, low) != (0, 1) => {
            [Some(at(12, &octets)), None, None]
        }
        // IPv4-translated (RFC 2765, 2.1).
        ([0, 0, 0, 0, 0xffff, 0, ..], _) => [Some(at(12, &octets)), None, None],
        // NAT64: the well-known prefix (RFC 6052, 2.1), and the one for local use (RFC 8215), which
        // may have the address at several positions (RFC 6052, 2.2).
        ([0x64, 0xff9b, 0, 0, 0, 0, ..], _) => [Some(at(12, &octets)), None, None],
        ([0x64, 0xff9b, 1, ..], [_, _, _, _, _, _, a, b, _, c, d, ..]) => {
            let with_48 = Ipv4Addr::new(a, b, c, d);
            let with_64 = Ipv4Addr::new(octets[9], octets[10], octets[11], octets[12]);
            // Bytes at positions without the address are mostly zeros.
            [at(12, &octets), with_48, with_64].map(|v4| Some(v4).filter(|v4| v4.octets()[0] != 0))
        }
        // 6to4 (RFC 3056, 2).
        ([0x2002, ..], _) => [Some(at(2, &octets)), None, None],
        // Teredo: the server, and the client with its bits inverted (RFC 4380, 4).
        ([0x2001, 0, ..], _) => [Some(at(4, &octets)), Some(inverted(at(12, &octets))), None],
        // ISATAP (RFC 5214, 6.1).
        ([_, _, _, _, 0 | 0x200, 0x5efe, ..], _) => [Some(at(12, &octets)), None, None],
        _ => [None; 3],
    }
}

fn at(start: usize, octets: &[u8; 16]) -> Ipv4Addr {
    Ipv4Addr::new(
        octets[start],
        octets[start + 1],
        octets[start + 2],
        octets[start + 3],
    )
}

fn inverted(v4: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(!v4.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse()
            .unwrap_or_else(|_| panic!("{text:?} is an address"))
    }

    #[test]
    fn special_addresses_are_refused_in_every_form() {
        let policy = EndpointPolicy::default();
        for (address, what) in [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("::", "unspecified"),
            ("169.254.169.254", "link-local"),
            ("fe80::1", "link-local"),
            ("fd00:ec2::254", "metadata"),
            ("fd20:ce::254", "metadata"),
            ("100.100.100.200", "metadata"),
            ("168.63.129.16", "metadata"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.250", "multicast"),
            ("ff02::1", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("::ffff:169.254.169.254", "link-local"),
            ("::169.254.169.254", "link-local"),
            ("::ffff:0:169.254.169.254", "link-local"),
            ("64:ff9b::169.254.169.254", "link-local"),
            ("64:ff9b:1::169.254.169.254", "link-local"),
            ("64:ff9b:1:a9fe:a9:fe00::", "link-local"),
            ("64:ff9b:1:0:a9:fea9:fe00:0", "link-local"),
            ("2002:a9fe:a9fe::1", "link-local"),
            ("2001:0:a9fe:a9fe::1", "link-local"),
            ("2001:0:5db8:d822:0:0:5601:5601", "link-local"),
            ("2001:db8::5efe:169.254.169.254", "link-local"),
            ("2001:db8::200:5efe:169.254.169.254", "link-local"),
        ] {
            let told = policy.refuses(ip(address));
            assert!(
                told.as_ref().is_some_and(|text| text.contains(what)),
                "{address}: {told:?}"
            );
        }
        for address in [
            "10.0.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "192.0.2.1",
            "2001:db8::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "64:ff9b::192.0.2.1",
            "64:ff9b:1::192.0.2.1",
            "64:ff9b:1:c000:2:100::",
            "2002:c000:201::1",
            "2001:db8::5efe:192.0.2.1",
        ] {
            assert_eq!(policy.refuses(ip(address)), None, "{address}");
        }
    }

    #[test]
    fn loopback_is_refused_where_envoys_are_pods() {
        let loopback = [
            "127.0.0.1",
            "127.1.2.3",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "2002:7f00:1::",
        ];
        let pods = EndpointPolicy {
            loopback: false,
            ..EndpointPolicy::default()
        };
        for address in loopback.map(ip) {
            assert_eq!(
                EndpointPolicy::default().refuses(address),
                None,
                "{address}"
            );
            assert_eq!(
                pods.refuses(address).as_deref(),
                Some(LOOPBACK),
                "{address}"
            );
        }
    }

    #[test]
    fn networks_of_the_installations_choice_are_refused_by_name() {
        let denied = ["10.0.0.0/8", "2001:db8::/32"]
            .map(|network| network.parse().expect("a network"))
            .to_vec();
        let policy = EndpointPolicy {
            denied,
            ..EndpointPolicy::default()
        };
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7"] {
            let told = policy.refuses(ip(address)).expect("it is denied");
            assert!(told.contains("--denied-endpoint-networks"), "{told}");
        }
        assert_eq!(policy.refuses(ip("11.0.0.1")), None);
    }
}
