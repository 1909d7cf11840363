//! The access log: a file that Envoy writes itself, and that this program keeps from growing
//! without bound.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use gatewright_control::event::warn_of_file;

use super::asking;

/// The name of the file in the private directory.
pub(super) const FILE: &str = "access.log";
/// The size at which the file is moved away, and Envoy begins another one.
const MAX_BYTES: u64 = 64 << 20;
/// The polling interval.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The path of the file before the current one.
fn older(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

/// Rotates the file when it is large, so that at most two files of this size exist. Ends only by
/// being dropped.
pub(super) async fn rotate(path: &Path, admin: &Path) -> Infallible {
    let older = older(path);
    // Until Envoy has opened the file anew, it writes to the one that was moved.
    let mut is_moved = false;
    let mut is_failing = false;
    loop {
        sleep(POLL_INTERVAL).await;
        let rotated = rotate_once(path, &older, admin, &mut is_moved).await;
        match rotated {
            Err(error) if !is_failing => {
                warn_of_file(path, error);
                is_failing = true;
            }
            Err(_) => {}
            Ok(()) => is_failing = false,
        }
    }
}

async fn rotate_once(
    path: &Path,
    older: &Path,
    admin: &Path,
    is_moved: &mut bool,
) -> io::Result<()> {
    if !*is_moved && size(path).await > MAX_BYTES {
        tokio::fs::rename(path, older).await?;
        *is_moved = true;
    }
    if *is_moved {
        *is_moved = !asking::reopen_logs(admin).await;
    }
    // An Envoy that does not answer, or that is about to end, may go on with the moved file.
    if size(older).await > 2 * MAX_BYTES {
        let file = tokio::fs::OpenOptions::new()
            .write(true)
            .open(older)
            .await?;
        file.set_len(0).await?;
    }
    Ok(())
}

/// The size of a file; 0 if it is not there.
async fn size(path: &Path) -> u64 {
    tokio::fs::metadata(path).await.map_or(0, |meta| meta.len())
}
