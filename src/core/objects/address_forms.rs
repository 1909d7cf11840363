//! The forms in which an IPv4 address can be written as an IPv6 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
