//! Space on the disk that is set aside for orders which the CA has already.
//!
//! An order is written before and after it is placed. On a disk that is nearly full the first write
//! may fit and the second may not: then the URL of the order is lost, and another order is placed
//! at the next attempt. So no order is placed without this file, whose space the second write may
//! take.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::{Kind, StorageError};

/// The name of the file in the private directory.
pub(super) const NAME: &str = "reserve";
/// Its size: dozens of orders under way, with their certificates and the journal.
const SIZE: u64 = 1 << 20;

/// Sets the space aside, unless that was done.
pub(super) fn fill(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| there.len() >= SIZE) {
        return Ok(());
    }
    let allocated = allocate(path);
    if allocated.is_err() {
        // What there is left of the disk is for others.
        release(path);
    }
    allocated
}

fn allocate(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, SIZE) {
        Err(Errno::OPNOTSUPP) => {
            let block = [0xff; 4096];
            for _ in 0..SIZE / block.len() as u64 {
                file.write_all(&block)?;
            }
            file.sync_data()
        }
        other => Ok(other?),
    }
}

/// Gives the space back to the file system. Returns true if there was some.
pub(super) fn release(path: &Path) -> bool {
    fs::remove_file(path).is_ok()
}

/// Returns true if a write failed since the disk is full, and if it may take the space: that of an
/// order or a certificate.
pub(super) fn may_help(kind: Kind, error: &StorageError) -> bool {
    let StorageError::Io { why, .. } = error else {
        return false;
    };
    matches!(kind, Kind::Order | Kind::Certificate)
        && matches!(
            why.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Size of the blocks in which a file system counts the space of a file.
    const BLOCK: u64 = 512;

    #[test]
    fn the_space_is_taken_until_it_is_released() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        fill(&path).expect("there is space");
        fill(&path).expect("it is there already");
        let blocks = fs::metadata(&path).expect("the file").blocks();
        assert!(blocks * BLOCK >= SIZE, "{blocks} blocks are allocated");
        assert!(release(&path), "there was some");
        assert!(!release(&path), "there is none left");
    }

    #[test]
    fn only_what_belongs_to_an_order_takes_the_space() {
        fn full(kind: io::ErrorKind) -> StorageError {
            StorageError::Io {
                doing: "writing",
                object: "x".to_owned(),
                why: kind.into(),
            }
        }
        let full_disk = full(io::ErrorKind::StorageFull);
        assert!(may_help(Kind::Order, &full_disk), "the URL of an order");
        assert!(may_help(Kind::Certificate, &full_disk), "its certificate");
        assert!(!may_help(Kind::Attempts, &full_disk), "a failed attempt");
        let quota = full(io::ErrorKind::QuotaExceeded);
        assert!(may_help(Kind::Order, &quota), "a quota is a full disk");
        let denied = full(io::ErrorKind::PermissionDenied);
        assert!(!may_help(Kind::Order, &denied), "space does not help");
    }
}
