//! A record that outlasts the program: a file in the private directory, with one line for each
//! change.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use tracing::{info, warn};

use super::private_dir::write_private;
use gatewright_control::event::{FILE, warn_of_file};
use gatewright_core::ownership::{Ownable, OwnerRecord};

/// The size of outdated lines, in bytes, up to which the file is not rewritten, however few records
/// it has.
const OUTDATED: u64 = 1 << 20;

/// The file, open for appending.
pub struct ClaimLog<E: Entry> {
    path: PathBuf,
    /// The size of its complete lines in bytes.
    length: u64,
    /// The present line of each record.
    present: BTreeMap<E::Key, Box<str>>,
    /// The size of these lines in bytes.
    present_length: u64,
    /// The lines that could not be written yet.
    waiting: String,
    /// True if the last write failed; the failure is logged once.
    failed: bool,
}

/// The kind of a record.
pub trait Entry {
    /// The subject that is owned.
    type Key: Ord + Clone;
    /// The recorded owner.
    type Owner;

    /// Formats a line without its end; without an owner it removes the entry.
    fn line(key: &Self::Key, owner: Option<&Self::Owner>) -> String;

    /// Parses a line.
    ///
    /// # Errors
    /// When it is invalid; the text says why.
    fn parse(line: &str) -> Result<(Self::Key, Option<Self::Owner>), String>;
}

/// The record of ownership.
pub struct Ownership;

impl Entry for Ownership {
    type Key = Ownable;
    type Owner = OwnerRecord;

    fn line(what: &Ownable, owner: Option<&OwnerRecord>) -> String {
        what.line(owner)
    }

    fn parse(line: &str) -> Result<(Ownable, Option<OwnerRecord>), String> {
        Ownable::parse(line)
    }
}

/// The owners, as parsed from the file.
type Owners<E> = BTreeMap<<E as Entry>::Key, <E as Entry>::Owner>;

/// The reason for which the file cannot be used. Without it hostnames could change their owner, so
/// this is fatal.
#[derive(Debug, thiserror::Error)]
pub enum ClaimLogError {
    /// The file cannot be read or written.
    #[error("{}: {why}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error.
        why: std::io::Error,
    },
    /// A line in the file is invalid.
    #[error("{}:{line}: {text}: mend or remove the line", path.display())]
    Line {
        /// The path of the file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The description of the error.
        text: String,
    },
}

impl<E: Entry> ClaimLog<E> {
    /// Reads the file, and rewrites it without outdated lines.
    ///
    /// # Errors
    /// When it cannot be read or written. A last line that a crash truncated is ignored: its change
    /// never took effect.
    pub fn open(path: &Path) -> Result<(Self, Owners<E>), ClaimLogError> {
        let io = |why| ClaimLogError::Io {
            path: path.to_path_buf(),
            why,
        };
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.map_err(io)?,
        };
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let mut records = BTreeMap::new();
        for (index, line) in whole.lines().enumerate() {
            let wrong = |text: String| ClaimLogError::Line {
                path: path.to_path_buf(),
                line: index + 1,
                text,
            };
            match E::parse(line).map_err(wrong)? {
                (key, Some(owner)) => records.insert(key, owner),
                (key, None) => records.remove(&key),
            };
        }
        let mut log = Self {
            path: path.to_path_buf(),
            length: whole.len() as u64,
            present: BTreeMap::new(),
            present_length: 0,
            waiting: String::new(),
            failed: false,
        };
        records
            .iter()
            .for_each(|(key, owner)| log.note(key, Some(owner)));
        match log.rewrite() {
            Ok(()) => {}
            // A longer file with outdated lines has the same content.
            Err(why) if text.is_empty() => return Err(io(why)),
            Err(why) => {
                // Bytes after the last complete line would corrupt the next one. Truncation needs
                // no space.
                fs::OpenOptions::new()
                    .write(true)
                    .open(path)
                    .and_then(|file| file.set_len(log.length))
                    .map_err(io)?;
                warn_of_file(path, format_args!("{why}; it is used as it is"));
            }
        }
        Ok((log, records))
    }

    /// Appends changes, and returns when they are on the disk. After a failure they are kept for
    /// [`ClaimLog::write`], and the failure is logged.
    pub fn append(&mut self, records: &BTreeMap<E::Key, Option<E::Owner>>) {
        self.waiting.extend(
            records
                .iter()
                .map(|(key, owner)| E::line(key, owner.as_ref()) + "\n"),
        );
        records
            .iter()
            .for_each(|(key, owner)| self.note(key, owner.as_ref()));
        self.write();
        // A longer file with outdated lines has the same content: a failure is no loss, and the
        // next change tries again.
        if self.waiting.is_empty() && self.length > 2 * self.present_length + OUTDATED {
            let _ = self.rewrite();
        }
    }

    /// Notes the present line of a record, or its removal.
    fn note(&mut self, key: &E::Key, owner: Option<&E::Owner>) {
        let size = |line: &str| line.len() as u64 + 1;
        let line = owner.map(|owner| Box::from(E::line(key, Some(owner))));
        self.present_length += line.as_deref().map_or(0, size);
        let before = match line {
            Some(line) => self.present.insert(key.clone(), line),
            None => self.present.remove(key),
        };
        self.present_length -= before.as_deref().map_or(0, size);
    }

    /// Rewrites the file without outdated lines.
    fn rewrite(&mut self) -> std::io::Result<()> {
        let text: String = self
            .present
            .values()
            .flat_map(|line| [line, "\n"])
            .collect();
        write_private(&self.path, text.as_bytes())?;
        self.length = self.present_length;
        // Lines that are appended to the new file must not be lost with its name.
        self.path
            .parent()
            .map_or(Ok(()), |dir| fs::File::open(dir)?.sync_all())
    }

    /// Retries lines that could not be written.
    pub fn write(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let write = || {
            let mut file = fs::OpenOptions::new().append(true).open(&self.path)?;
            if self.failed {
                // The last attempt may have ended in the middle of a line, in a process that could
                // not truncate the file.
                file.set_len(self.length)?;
            }
            file.write_all(self.waiting.as_bytes())
                .and_then(|()| file.sync_data())
                .inspect_err(|_| {
                    // Written lines are truncated, including partial ones: all of them are written
                    // again. Truncation needs no space, and if it fails, the next attempt repeats
                    // it.
                    let _cut_off = file.set_len(self.length);
                })
        };
        let path = self.path.display();
        let count = self.waiting.lines().count();
        match write() {
            Ok(()) => {
                self.length += self.waiting.len() as u64;
                self.waiting.clear();
                if std::mem::take(&mut self.failed) {
                    info!(event = FILE, file = %path, "{path}: {count} records that waited are written");
                }
            }
            Err(why) => {
                if !std::mem::replace(&mut self.failed, true) {
                    warn!(
                        event = FILE,
                        file = %path,
                        "{path}: {why}; {count} records are in memory only until they can be written: free disk space, or the \
                         owners of these names are decided again at the next start"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::Hostname;

    use super::*;

    fn host(text: &str) -> Ownable {
        Ownable::Tenant(Hostname::parse(text).expect("a hostname"))
    }

    fn record(namespace: &str, since: u64) -> OwnerRecord {
        OwnerRecord {
            namespace: namespace.into(),
            since,
            protocol: None,
            released: Some(since + 7).filter(|_| since > 1),
        }
    }

    #[test]
    fn written_records_survive_a_restart_and_a_truncated_line_does_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("claims");
        let (mut claim_log, records) = ClaimLog::<Ownership>::open(&path).expect("opens");
        assert!(records.is_empty());
        let changes = [
            (host("a.org"), Some(record("x", 1))),
            (host("b.org"), Some(record("y", 2))),
        ];
        claim_log.append(&changes.into());
        claim_log.append(&[(host("a.org"), None)].into());
        let text = fs::read_to_string(&path).expect("it is there");
        fs::write(&path, text + "{\"hostname\": \"c.o").expect("a cut line");
        for _ in 0..2 {
            let (_, records) = ClaimLog::<Ownership>::open(&path).expect("opens");
            assert_eq!(records, [(host("b.org"), record("y", 2))].into());
        }
        fs::write(&path, "nonsense\n").expect("writes");
        assert!(
            ClaimLog::<Ownership>::open(&path)
                .is_err_and(|error| error.to_string().contains(":1: "))
        );
    }

    #[test]
    fn the_file_stays_short_however_often_records_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("claims");
        let (mut claim_log, _) = ClaimLog::<Ownership>::open(&path).expect("opens");
        let kept = [(host("kept.org"), record("x", 1))];
        claim_log.append(
            &kept
                .clone()
                .map(|(host, record)| (host, Some(record)))
                .into(),
        );
        let mut longest = 0;
        for round in 0..300 {
            let name = |index| host(&format!("h{index}-{round}.example.org"));
            claim_log.append(
                &(0..60)
                    .map(|index| (name(index), Some(record("x", 2))))
                    .collect(),
            );
            claim_log.append(&(0..60).map(|index| (name(index), None)).collect());
            longest = longest.max(fs::metadata(&path).expect("it is there").len());
        }
        assert!(
            longest < 2 * claim_log.present_length + OUTDATED + (16 << 10),
            "{longest} bytes"
        );
        assert!(
            longest > OUTDATED / 2,
            "it is not rewritten for each change: {longest} bytes"
        );
        let (_, records) = ClaimLog::<Ownership>::open(&path).expect("opens");
        assert_eq!(records, kept.into());
    }

    #[test]
    fn records_that_cannot_be_written_wait_until_they_can() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("claims");
        let away = dir.path().join("away");
        let (mut claim_log, _) = ClaimLog::<Ownership>::open(&path).expect("opens");
        claim_log.append(&[(host("a.org"), Some(record("x", 1)))].into());
        fs::rename(&path, &away).expect("it is there");
        for (name, since) in [("b.org", 2), ("c.org", 3)] {
            claim_log.append(&[(host(name), Some(record("y", since)))].into());
        }
        // The file after an attempt that ended in the middle of a line.
        let text = fs::read_to_string(&away).expect("it is there") + "{\"hostname\": \"b.o";
        fs::write(&path, text).expect("writes");
        claim_log.write();
        let (_, records) = ClaimLog::<Ownership>::open(&path).expect("every line is whole");
        let expected = [("a.org", "x", 1), ("b.org", "y", 2), ("c.org", "y", 3)];
        assert_eq!(
            records,
            expected
                .map(|(name, namespace, since)| (host(name), record(namespace, since)))
                .into()
        );
    }
}
