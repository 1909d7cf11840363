//! A file that others append to, truncate and replace.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most bytes of a line; the rest of a longer one is dropped.
const LINE_BYTES: usize = 1 << 20;

/// Reads the last bytes of a file, from the beginning of a line on.
pub(crate) fn end_of(path: &Path, bytes: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    file.take(bytes).read_to_end(&mut end)?;
    let end = String::from_utf8_lossy(&end);
    let whole = if length > bytes {
        end.split_once('\n').map_or("", |(_, rest)| rest)
    } else {
        &end
    };
    Ok(whole.to_owned())
}

/// The place up to which a file was read.
pub(super) struct Follower {
    path: PathBuf,
    open: Option<Open>,
}

struct Open {
    file: BufReader<File>,
    /// Bytes that were read.
    read: u64,
    /// The beginning of a line whose end is not written yet.
    begun: Vec<u8>,
}

impl Follower {
    /// Nothing is read yet.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            open: None,
        }
    }

    /// Passes each new whole line to a function. Of a file that was replaced, the rest comes first.
    ///
    /// # Errors
    /// When the file is not there or cannot be read, or those of the function.
    pub(super) fn read(&mut self, mut each: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        loop {
            let open = match &mut self.open {
                Some(open) => open,
                None => self.open.insert(Open::new(&self.path)?),
            };
            open.lines(&mut each)?;
            if open.is_current(&self.path)? {
                return Ok(());
            }
            self.open = None;
        }
    }
}

impl Open {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: BufReader::new(File::open(path)?),
            read: 0,
            begun: Vec::new(),
        })
    }

    /// True if the path still leads to this file, and it is as long as was read.
    fn is_current(&self, path: &Path) -> io::Result<bool> {
        let own = self.file.get_ref().metadata()?;
        let there = std::fs::metadata(path)?;
        let is_same = own.ino() == there.ino() && own.dev() == there.dev();
        Ok(is_same && there.len() >= self.read)
    }

    fn lines(&mut self, each: &mut impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        loop {
            let bytes = self.file.fill_buf()?;
            if bytes.is_empty() {
                return Ok(());
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let room = LINE_BYTES.saturating_sub(self.begun.len());
            self.begun.extend(&part[..part.len().min(room)]);
            let taken = end.map_or(bytes.len(), |end| end + 1);
            self.file.consume(taken);
            self.read += taken as u64;
            if end.is_some() {
                let line = std::mem::take(&mut self.begun);
                each(&String::from_utf8_lossy(&line))?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::*;

    #[test]
    fn a_log_is_read_from_its_end_in_whole_lines() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a.log");
        std::fs::write(&file, "one\ntwo\n").expect("written");
        assert_eq!(end_of(&file, 4 << 20).expect("a log"), "one\ntwo\n");
        let line = "x".repeat(1 << 20) + "\n";
        std::fs::write(&file, line.repeat(6)).expect("written");
        let text = end_of(&file, 4 << 20).expect("a log");
        assert_eq!(text.lines().count(), 3, "whole lines");
        assert!(
            end_of(&dir.path().join("none"), 4 << 20).is_err(),
            "it is not there"
        );
    }

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .expect("it opens");
        file.write_all(text.as_bytes()).expect("it is written");
    }

    fn read(follower: &mut Follower) -> Vec<String> {
        let mut lines = Vec::new();
        follower
            .read(|line| {
                lines.push(line.to_owned());
                Ok(())
            })
            .expect("it is read");
        lines
    }

    #[test]
    fn lines_come_once_and_whole_through_rotation_and_truncation() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("access.log");
        let mut follower = Follower::new(&path);
        assert!(follower.read(|_| Ok(())).is_err(), "it is not there");
        append(&path, "one\ntw");
        assert_eq!(read(&mut follower), ["one"]);
        append(&path, "o\n");
        assert_eq!(read(&mut follower), ["two"], "its end came later");
        append(&path, "three\n");
        fs::rename(&path, dir.path().join("access.log.1")).expect("it is moved");
        append(&path, "four\n");
        assert_eq!(read(&mut follower), ["three", "four"], "rotated");
        fs::write(&path, "").expect("it is truncated");
        append(&path, "5\n");
        assert_eq!(read(&mut follower), ["5"], "truncated");
    }
}
