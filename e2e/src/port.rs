//! Ports for programs that are told theirs before they bind it.
//!
//! A port that the kernel gives out and that is closed again may be given to anybody else until whoever is to have it
//! binds it, which takes seconds where another program starts first. So these are from a range that the kernel gives to
//! nobody by itself, and each is handed out once.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// Below the ports of clients (`ip_local_port_range`), and beside those of the built-in example and of the dedicated fleet.
const RANGE: Range<u16> = 10_000..17_000;
/// How many were handed out.
static GIVEN: AtomicU16 = AtomicU16::new(0);

/// A port of loopback that nobody has, over TCP and UDP, and that no other test of this process is given.
///
/// # Errors
/// When there is none.
pub fn free_port() -> Result<u16> {
    let address = Ipv4Addr::LOCALHOST;
    let count = RANGE.end - RANGE.start;
    // Processes that run at the same time begin at different places.
    let start = u16::try_from(std::process::id() % 70).expect("below 70") * 100;
    for _ in 0..count {
        let number = GIVEN.fetch_add(1, Ordering::Relaxed) % count;
        let port = RANGE.start + (start + number) % count;
        if TcpListener::bind((address, port)).is_ok() && UdpSocket::bind((address, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of loopback from {} to {} is free", RANGE.start, RANGE.end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_handed_out_once_and_never_where_somebody_is() {
        let first = free_port().unwrap();
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first + 1));
        let all: std::collections::BTreeSet<u16> = (0..100).map(|_| free_port().unwrap()).collect();
        assert!(all.len() == 100 && !all.contains(&first) && !all.contains(&(first + 1)), "{first}: {all:?}");
    }
}
