//! Envoy's log: a file that Envoy writes itself, so that it can log while this program does not
//! run.

use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncSeekExt, SeekFrom};
use tokio::time::sleep;
use tracing::warn;

use gatewright_control::event::warn_of_file;

/// The size at which the log is truncated.
const MAX_BYTES: u64 = 64 << 20;
/// The polling interval.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum size of one read.
const AT_ONCE: u64 = 1 << 20;
/// The maximum length of a line that is repeated in our log.
const MAX_LINE: usize = 1000;

/// Opens the log for appending.
///
/// # Errors
/// When it cannot be opened.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// Repeats new warnings in our log, and truncates the file when it is large. Ends only by being
/// dropped.
pub(super) async fn follow(path: &Path) -> Infallible {
    let mut read = tokio::fs::metadata(path).await.map_or(0, |meta| meta.len());
    let mut begun = Vec::new();
    loop {
        sleep(POLL_INTERVAL).await;
        // The file is missing before the first Envoy.
        let Ok(meta) = tokio::fs::metadata(path).await else {
            continue;
        };
        if meta.len() < read {
            (read, begun) = (0, Vec::new());
        }
        if meta.len() > read {
            match piece(path, read).await {
                Ok(bytes) => {
                    read += bytes.len() as u64;
                    begun.extend(bytes);
                    let whole = begun
                        .iter()
                        .rposition(|byte| *byte == b'\n')
                        .map_or(0, |end| end + 1);
                    let lines: Vec<u8> = begun.drain(..whole).collect();
                    tell(&String::from_utf8_lossy(&lines));
                    begun.truncate(AT_ONCE as usize);
                }
                Err(error) => warn_of_file(path, error),
            }
        }
        if read > MAX_BYTES && shorten(path).await.is_ok() {
            read = 0;
        }
    }
}

async fn piece(path: &Path, from: u64) -> io::Result<Vec<u8>> {
    let mut file = tokio::fs::File::open(path).await?;
    file.seek(SeekFrom::Start(from)).await?;
    let mut bytes = Vec::new();
    file.take(AT_ONCE).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// Envoy opened the file for appending, so it goes on at the new end.
async fn shorten(path: &Path) -> io::Result<()> {
    tokio::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .await?
        .set_len(0)
        .await
}

fn tell(lines: &str) {
    for line in lines.lines().filter(|line| is_told(line)) {
        warn!(target: "envoy", "{}", line.chars().take(MAX_LINE).collect::<String>());
    }
}

/// Warnings of Envoy in normal operation: that the domain matcher is work in progress, at every
/// update of the SNI matcher; and that it ends, or is replaced, as ordered.
const ORDINARY: [&str; 4] = [
    "marked as work-in-progress",
    "caught ENVOY_SIGTERM",
    "shutting down admin due to child startup",
    "terminating parent process",
];

/// Envoy logs several lines each time it is asked to bind an address and cannot. The program
/// reports that once itself, except for a Unix socket, which is Envoy's own.
fn is_reported_once(line: &str) -> bool {
    line.split_once("cannot bind '")
        .is_some_and(|(_, address)| !address.starts_with('/'))
}

fn is_told(line: &str) -> bool {
    !is_reported_once(line)
        && !ORDINARY.iter().any(|text| line.contains(text))
        && ["[warning]", "[error]", "[critical]"]
            .iter()
            .any(|level| line.contains(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_told_and_the_rest_is_kept_in_the_file() {
        assert!(is_told(
            "[2026-01-01 00:00:00.000][1][warning][config] [x.cc:1] refused"
        ));
        assert!(!is_told(
            "[2026-01-01 00:00:00.000][1][info][main] [x.cc:1] started"
        ));
        assert!(!is_told(
            "[2026-01-01 00:00:00.000][1][warning][misc] message is marked as work-in-progress"
        ));
        let bind = |address| {
            format!("[1][error][config] [x.cc:1] cannot bind '{address}': Address already in use")
        };
        assert!(is_told(&bind("/run/admin.sock")) && !is_told(&bind("0.0.0.0:80")));
    }
}
