//! Ports and addresses for programs that are told theirs before they bind it.
//!
//! A port that the kernel gives out and that is closed again may be given to anybody else until whoever is to have it
//! binds it, which takes seconds where another program starts first. So these are from a range that the kernel gives to
//! nobody by itself, each is handed out once, and processes that run at the same time have blocks of their own: a block
//! belongs to whoever holds the lock of its file, and is free again when that process ends. A process that had all blocks that
//! are free begins with its first again.

use std::collections::VecDeque;
use std::env::temp_dir;
use std::fs::{File, OpenOptions, create_dir_all};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

/// Below the ports of clients (`ip_local_port_range`), and beside those of the built-in example and of the dedicated fleet.
const RANGE: Range<u16> = 10_000..17_000;
/// How many ports are in a block.
const BLOCK: u16 = 100;

/// What this process may hand out.
static OURS: Mutex<Ours> = Mutex::new(Ours { left: 0..0, blocks: VecDeque::new() });

struct Ours {
    left: Range<u16>,
    /// Our blocks by their first ports, the one that was begun longest ago in front. Each is ours while its file is open.
    blocks: VecDeque<(u16, File)>,
}

impl Ours {
    /// Begins a block that no process has, from another place in each process; where there is none, one of ours again.
    fn more(&mut self) -> Result<()> {
        let folder = temp_dir().join("gatewright-test-ports");
        create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let count = (RANGE.end - RANGE.start) / BLOCK;
        let first = u16::try_from(std::process::id() % u32::from(count)).expect("below the count");
        for number in (0..count).map(|step| (first + step) % count) {
            let path = folder.join(number.to_string());
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let file = file.with_context(|| path.display().to_string())?;
            if file.try_lock().is_ok() {
                self.begin((RANGE.start + number * BLOCK, file));
                return Ok(());
            }
        }
        match self.blocks.pop_front() {
            Some(block) => self.begin(block),
            None => bail!("other tests have all ports of loopback from {} to {}", RANGE.start, RANGE.end - 1),
        }
        Ok(())
    }

    fn begin(&mut self, (start, file): (u16, File)) {
        self.left = start..start + BLOCK;
        self.blocks.push_back((start, file));
    }
}

/// A port of loopback that nobody has, over TCP and UDP, and that no other test is given.
///
/// # Errors
/// When there is none.
pub fn free_port() -> Result<u16> {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    let address = Ipv4Addr::LOCALHOST;
    for _ in RANGE {
        let Some(port) = ours.left.next() else {
            ours.more()?;
            continue;
        };
        if TcpListener::bind((address, port)).is_ok() && UdpSocket::bind((address, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of loopback from {} to {} is free", RANGE.start, RANGE.end - 1)
}

/// An address of loopback that no other test has: for servers at well-known ports.
pub fn own_address() -> Ipv4Addr {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let id = std::process::id();
    let byte = |number: u32| u8::try_from(number % 250).unwrap_or_default() + 1;
    Ipv4Addr::new(127, 100 + COUNT.fetch_add(1, Ordering::Relaxed) % 150, byte(id / 250), byte(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_handed_out_once_and_never_where_somebody_is() {
        let first = free_port().unwrap();
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first + 1));
        let all: std::collections::BTreeSet<u16> = (0..150).map(|_| free_port().unwrap()).collect();
        assert!(all.len() == 150 && !all.contains(&first) && !all.contains(&(first + 1)), "{first}: {all:?}");
    }

    #[test]
    fn an_address_is_handed_out_once() {
        let all: std::collections::BTreeSet<Ipv4Addr> = (0..100).map(|_| own_address()).collect();
        assert!(all.len() == 100 && all.iter().all(Ipv4Addr::is_loopback), "{all:?}");
    }

    #[test]
    fn another_process_has_other_blocks() {
        free_port().unwrap();
        let mut other = Ours { left: 0..0, blocks: VecDeque::new() };
        other.more().unwrap();
        let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!other.left.contains(&(ours.left.end - 1)), "{:?} and {:?}", other.left, ours.left);
    }
}
