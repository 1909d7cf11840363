//! Ports and addresses for programs that are given theirs before they bind it.
//!
//! A port that the kernel assigns and that is closed again may be assigned to any other process
//! until the program binds it, which takes seconds if another program starts first. Therefore ports
//! are from a range that the kernel never assigns by itself, each is handed out once, and
//! concurrent processes have blocks of their own: a process owns a block while it holds the lock of
//! its file, which is released when the process ends. A process that has used all free blocks
//! starts again with its first.

use std::collections::VecDeque;
use std::env::temp_dir;
use std::fs::{File, OpenOptions, create_dir_all};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

/// Below the kernel's range of client ports (`ip_local_port_range`), and disjoint from those of the
/// built-in example and of the dedicated fleet.
const RANGE: Range<u16> = 10_000..17_000;
/// Ports per block.
const BLOCK: u16 = 100;

/// The ports that this process may hand out.
static OURS: Mutex<Ours> = Mutex::new(Ours {
    left: 0..0,
    blocks: VecDeque::new(),
});

struct Ours {
    left: Range<u16>,
    /// Our blocks by their first ports, the oldest in front. Each is ours while its file is open.
    blocks: VecDeque<(u16, File)>,
}

impl Ours {
    /// Takes a block that no process has, starting at a different position in each process; if
    /// there is none, one of ours again.
    fn more(&mut self) -> Result<()> {
        let folder = temp_dir().join("gatewright-test-ports");
        create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let count = (RANGE.end - RANGE.start) / BLOCK;
        let first = u16::try_from(std::process::id() % u32::from(count)).expect("below the count");
        for number in (0..count).map(|step| (first + step) % count) {
            let path = folder.join(number.to_string());
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path);
            let file = file.with_context(|| path.display().to_string())?;
            if file.try_lock().is_ok() {
                self.begin((RANGE.start + number * BLOCK, file));
                return Ok(());
            }
        }
        match self.blocks.pop_front() {
            Some(block) => self.begin(block),
            None => bail!(
                "other tests have all ports of loopback from {} to {}",
                RANGE.start,
                RANGE.end - 1
            ),
        }
        Ok(())
    }

    fn begin(&mut self, (start, file): (u16, File)) {
        self.left = start..start + BLOCK;
        self.blocks.push_back((start, file));
    }
}

/// Returns a loopback port that is free for TCP and UDP, and that no other test gets.
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
    bail!(
        "no port of loopback from {} to {} is free",
        RANGE.start,
        RANGE.end - 1
    )
}

/// Returns a loopback address that no other test has: for servers at well-known ports.
pub fn own_address() -> Ipv4Addr {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let id = std::process::id();
    let byte = |number: u32| u8::try_from(number % 250).unwrap_or_default() + 1;
    Ipv4Addr::new(
        127,
        100 + COUNT.fetch_add(1, Ordering::Relaxed) % 150,
        byte(id / 250),
        byte(id),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_handed_out_once_and_never_where_somebody_is() {
        let first = free_port().unwrap();
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first + 1));
        let all: std::collections::BTreeSet<u16> = (0..150).map(|_| free_port().unwrap()).collect();
        assert!(
            all.len() == 150 && !all.contains(&first) && !all.contains(&(first + 1)),
            "{first}: {all:?}"
        );
    }

    #[test]
    fn an_address_is_handed_out_once() {
        let all: std::collections::BTreeSet<Ipv4Addr> = (0..100).map(|_| own_address()).collect();
        assert!(
            all.len() == 100 && all.iter().all(Ipv4Addr::is_loopback),
            "{all:?}"
        );
    }

    #[test]
    fn another_process_has_other_blocks() {
        free_port().unwrap();
        let mut other = Ours {
            left: 0..0,
            blocks: VecDeque::new(),
        };
        other.more().unwrap();
        let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(
            !other.left.contains(&(ours.left.end - 1)),
            "{:?} and {:?}",
            other.left,
            ours.left
        );
    }
}
