//! The history of changes in a file, so that it is kept over restarts: a line of JSON for each
//! change when it is new, and another one when its outcome is known.
//!
//! Lines are appended by a task of its own, which nobody waits for. From time to time the file is
//! replaced by what a [`History`] remembers of it, so that it has the same bounds, and no namespace
//! pushes out the changes of others. A line that cannot be read, such as the last one of a program
//! that was killed, is left out. What a full disk has no room for is missing after a restart.
//!
//! The file has names of objects, field managers and hostnames; nothing in it is secret.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gatewright_control::ControlPlane;
use gatewright_control::event::warn_of_file;
use gatewright_control::history::{History, HistoryEntry};
use gatewright_control::tasks::blocking;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::replace::replace;

/// The maximum number of entries that wait to be written.
const WAITING: usize = 4096;
/// The time in which entries are collected and written together.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of bytes that are appended before the file is replaced.
const APPENDED: u64 = 8 << 20;
/// The maximum size of a file that is read.
const READ: u64 = 64 << 20;

/// The file.
struct HistoryFile {
    path: PathBuf,
    /// The number of bytes that are appended before it is replaced.
    appended: u64,
    /// Its size at which it is replaced.
    full: u64,
    /// True if it may end within a line.
    is_torn: bool,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Change(Box<HistoryEntry>),
    /// The time of the newest change that is missing.
    Forgotten {
        forgotten: Timestamp,
    },
}

/// Returns a control plane that goes on with the history in a file, and the task that writes it
/// until `stop`. A file that cannot be read is logged, and does not prevent the start.
pub(crate) async fn kept(
    path: PathBuf,
    live: ControlPlane,
    stop: watch::Receiver<bool>,
) -> (
    ControlPlane,
    impl Future<Output = anyhow::Result<()>> + Send,
) {
    let (sender, entries) = mpsc::channel(WAITING);
    let opened = blocking("history", move || HistoryFile::open(path, APPENDED)).await;
    let (file, history) = gatewright_control::tasks::joined(opened).unzip();
    let live = live.remembering(history.unwrap_or_default(), sender);
    let keeping = async move {
        if let Some(file) = file {
            keep(file, entries, stop).await;
        }
        Ok(())
    };
    (live, keeping)
}

/// Writes entries until `stop`, then those that wait.
async fn keep(
    mut file: HistoryFile,
    mut entries: mpsc::Receiver<HistoryEntry>,
    mut stop: watch::Receiver<bool>,
) {
    let mut said = String::new();
    loop {
        let mut batch = Vec::new();
        let is_over = tokio::select! {
            received = entries.recv_many(&mut batch, WAITING) => received == 0,
            _ = stop.wait_for(|stop| *stop) => true,
        };
        if !is_over {
            tokio::select! {
                () = sleep(PAUSE) => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }
        while batch.len() < 2 * WAITING
            && let Ok(entry) = entries.try_recv()
        {
            batch.push(entry);
        }
        let path = file.path.clone();
        let written = blocking("history", move || {
            let written = file.append(&batch);
            (file, written)
        });
        let Some((back, written)) = gatewright_control::tasks::joined(written.await) else {
            return;
        };
        file = back;
        let failure = written.err().map(|error| error.to_string());
        if let Some(text) = failure.as_ref().filter(|text| **text != said) {
            warn_of_file(
                &path,
                format_args!("{text}; changes are remembered until the program ends"),
            );
        }
        said = failure.unwrap_or_default();
        if is_over {
            return;
        }
    }
}

impl HistoryFile {
    /// Opens the file at this path, which may be missing. It is replaced whenever `appended` bytes
    /// are appended, and at first when it has twice as many.
    fn open(path: PathBuf, appended: u64) -> (Self, History) {
        let read = read(&path);
        let file = Self {
            is_torn: read.is_err() || ends_within_a_line(&path).unwrap_or(true),
            // One that cannot be read is replaced by the first entries.
            full: if read.is_err() { 0 } else { 2 * appended },
            appended,
            path,
        };
        let history = read.unwrap_or_else(|error| {
            warn_of_file(&file.path, format_args!("{error}; it is begun anew"));
            History::default()
        });
        (file, history)
    }

    /// Appends entries.
    fn append(&mut self, entries: &[HistoryEntry]) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        for entry in entries {
            line(&mut text, &Line::Change(Box::new(entry.clone())))?;
        }
        let mut size = std::fs::metadata(&self.path).map_or(0, |file| file.len());
        if size + text.len() as u64 > self.full {
            size = self.compact()?;
            self.full = size + self.appended.max(text.len() as u64);
        }
        if self.is_torn && size > 0 {
            text.insert(0, b'\n');
        }
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)?;
        if let Err(error) = file.write_all(&text) {
            self.is_torn = file.set_len(size).is_err();
            return Err(error);
        }
        self.is_torn = false;
        Ok(())
    }

    /// Replaces the file by what a history remembers of it. Returns its size.
    fn compact(&mut self) -> io::Result<u64> {
        let history = read(&self.path).unwrap_or_default();
        replace(&self.path, |file| {
            if let Some(forgotten) = history.forgotten() {
                line(file, &Line::Forgotten { forgotten })?;
            }
            for entry in history.all() {
                line(file, &Line::Change(Box::new(entry.clone())))?;
            }
            Ok(())
        })?;
        self.is_torn = false;
        Ok(std::fs::metadata(&self.path)?.len())
    }
}

/// Reads the file; an empty history where there is none.
fn read(path: &Path) -> io::Result<History> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(History::default()),
        file => file?,
    };
    if file.metadata()?.len() > READ {
        let text = format!("it has more than {} MiB", READ >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let mut entries = Vec::new();
    let mut newest = None;
    for line in BufReader::new(file).split(b'\n') {
        match serde_json::from_slice(&line?) {
            Ok(Line::Change(entry)) => entries.push(*entry),
            Ok(Line::Forgotten { forgotten }) => newest = newest.max(Some(forgotten)),
            Err(_) => {}
        }
    }
    Ok(History::restored(entries, newest))
}

fn ends_within_a_line(path: &Path) -> io::Result<bool> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

fn line(to: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    fn entry(number: u64, namespace: &str, outcome: &str) -> HistoryEntry {
        let entry = json!({"number": number, "at": "2026-11-26T03:12:04Z", "kind": "endpoints",
            "namespace": namespace, "objects": [], "hosts": ["x".repeat(100)], "outcome": outcome,
            "envoys": []});
        serde_json::from_value(entry).expect("an entry")
    }

    fn path(dir: &tempfile::TempDir) -> PathBuf {
        dir.path().join("history.jsonl")
    }

    fn namespaces(history: &History) -> Vec<&str> {
        let all = history.all().into_iter();
        all.map(|entry| &*entry.namespace).collect()
    }

    #[test]
    fn what_was_written_is_there_after_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut file, history) = HistoryFile::open(path(&dir), APPENDED);
        assert!(history.all().is_empty(), "there is no file");
        let first = [entry(0, "a", "Waiting"), entry(1, "b", "Waiting")];
        file.append(&first).expect("written");
        file.append(&[entry(0, "a", "Acknowledged")])
            .expect("written");
        let mode = std::fs::metadata(path(&dir)).expect("a file").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "it is this user's alone");
        let (_, history) = HistoryFile::open(path(&dir), APPENDED);
        let outcomes: Vec<_> = history
            .all()
            .iter()
            .map(|entry| format!("{:?}", entry.outcome))
            .collect();
        assert_eq!(outcomes, ["Acknowledged", "Unknown"]);
    }

    #[test]
    fn a_torn_line_costs_itself_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut file, _) = HistoryFile::open(path(&dir), APPENDED);
        let two = [entry(0, "a", "Acknowledged"), entry(1, "b", "Acknowledged")];
        file.append(&two).expect("written");
        let text = std::fs::read(path(&dir)).expect("a file");
        std::fs::write(path(&dir), &text[..text.len() - 20]).expect("torn");
        let (mut file, history) = HistoryFile::open(path(&dir), APPENDED);
        assert_eq!(namespaces(&history), ["a"]);
        file.append(&[entry(2, "c", "Acknowledged")])
            .expect("written");
        let (_, history) = HistoryFile::open(path(&dir), APPENDED);
        assert_eq!(namespaces(&history), ["a", "c"], "what follows is whole");
    }

    #[test]
    fn damaged_files_do_not_prevent_a_start() {
        let dir = tempfile::tempdir().expect("a directory");
        for damaged in [&b"\0\xff\n{}\n[]\nnull\n\n"[..], b"\n", b"{"] {
            std::fs::write(path(&dir), damaged).expect("written");
            let (mut file, history) = HistoryFile::open(path(&dir), APPENDED);
            assert!(history.all().is_empty(), "{damaged:?}");
            file.append(&[entry(0, "a", "Acknowledged")])
                .expect("written");
            let (_, history) = HistoryFile::open(path(&dir), APPENDED);
            assert_eq!(namespaces(&history), ["a"], "{damaged:?}");
        }
        let huge = File::create(path(&dir)).expect("a file");
        huge.set_len(READ + 1).expect("a sparse file");
        let (mut file, history) = HistoryFile::open(path(&dir), APPENDED);
        assert!(history.all().is_empty(), "it is not read");
        file.append(&[entry(0, "a", "Acknowledged")])
            .expect("it is begun anew");
        let (_, history) = HistoryFile::open(path(&dir), APPENDED);
        assert_eq!(namespaces(&history), ["a"]);
    }

    #[test]
    fn the_file_is_bounded_and_a_loud_namespace_pushes_out_its_own_changes() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut file, _) = HistoryFile::open(path(&dir), 1 << 20);
        file.append(&[entry(0, "quiet", "Acknowledged")])
            .expect("written");
        for round in 0..40 {
            let numbers = 1 + round * 1_000..1 + (round + 1) * 1_000;
            let loud: Vec<_> = numbers
                .map(|number| entry(number, "loud", "Acknowledged"))
                .collect();
            file.append(&loud).expect("written");
        }
        let size = std::fs::metadata(path(&dir)).expect("a file").len();
        assert!(size < 2 << 20, "{size} bytes");
        let (_, history) = HistoryFile::open(path(&dir), 1 << 20);
        assert_eq!(namespaces(&history)[0], "quiet", "it stays");
        assert!(
            history.forgotten().is_some(),
            "it says that it is not whole"
        );
    }

    #[test]
    fn a_full_disk_loses_what_it_has_no_room_for() {
        let Ok(full) = std::fs::canonicalize("/dev/full") else {
            return;
        };
        let mut file = HistoryFile {
            path: full,
            appended: APPENDED,
            full: u64::MAX,
            is_torn: false,
        };
        let failed = file.append(&[entry(0, "a", "Acknowledged")]);
        let kind = failed.expect_err("there is no room").kind();
        assert_eq!(kind, io::ErrorKind::StorageFull);
    }
}
