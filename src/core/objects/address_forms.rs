//! The forms in which an IPv4 address can be written as an IPv6 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The bits before the IPv4 address in an IPv4-mapped one (RFC 4291, 2.5.5.2).
const MAPPED_BITS: u8 = 96;

/// The network of all IPv4-mapped addresses.
const MAPPED: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), MAPPED_BITS);

/// A network of IPv4-mapped addresses as the network of IPv4 that it is.
pub fn canonical_network(network: IpNet) -> IpNet {
    let IpNet::V6(mapped) = network else {
        return network;
    };
    let v4 = mapped.addr().to_ipv4_mapped();
    let length = mapped.prefix_len().checked_sub(MAPPED_BITS);
    let v4 = v4
        .zip(length)
        .and_then(|(v4, length)| Ipv4Net::new(v4, length).ok());
    v4.map_or(network, IpNet::V4)
}

/// A network of IPv4 in its IPv4-mapped form.
pub fn mapped_network(network: Ipv4Net) -> IpNet {
    let mapped = Ipv6Net::new(
        network.addr().to_ipv6_mapped(),
        MAPPED_BITS + network.prefix_len(),
    );
    IpNet::V6(mapped.expect("a prefix of at most 32 bits behind one of 96"))
}

/// The network of all IPv4-mapped addresses, if an IPv6 network contains it: these addresses are
/// clients of IPv4, so they are none of the network.
pub fn mapped_within(network: Ipv6Net) -> Option<IpNet> {
    network.contains(&MAPPED).then_some(IpNet::V6(MAPPED))
}

/// An address and the IPv4 addresses that it leads to: an IPv6 address can embed one in many ways.
pub fn forms(address: IpAddr) -> impl Iterator<Item = IpAddr> {
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

    fn network(text: &str) -> IpNet {
        text.parse().expect("a network")
    }

    #[test]
    fn a_mapped_network_is_that_of_ipv4() {
        for (mapped, v4) in [
            ("::ffff:198.51.100.7/128", "198.51.100.7/32"),
            ("::FFFF:c633:6400/120", "198.51.100.0/24"),
            ("0:0:0:0:0:ffff:0:0/96", "0.0.0.0/0"),
        ] {
            assert_eq!(canonical_network(network(mapped)), network(v4), "{mapped}");
            let IpNet::V4(v4) = network(v4) else {
                panic!("{v4} is of IPv4")
            };
            assert_eq!(mapped_network(v4), network(mapped), "{v4}");
        }
        // Wider, translated (RFC 2765), NAT64 (RFC 6052), and IPv4-compatible.
        for other in [
            "::ffff:0:0/95",
            "::/0",
            "::ffff:0:198.51.100.7/128",
            "64:ff9b::198.51.100.7/128",
            "::198.51.100.7/128",
            "198.51.100.7/32",
        ] {
            assert_eq!(canonical_network(network(other)), network(other), "{other}");
        }
    }

    #[test]
    fn a_wide_ipv6_network_contains_the_mapped_addresses() {
        for (text, contains) in [
            ("::/0", true),
            ("::/80", true),
            ("::ffff:0:0/95", true),
            ("2000::/3", false),
            ("::1/128", false),
        ] {
            let IpNet::V6(network) = network(text) else {
                panic!("{text} is of IPv6")
            };
            assert_eq!(mapped_within(network).is_some(), contains, "{text}");
        }
    }
}
