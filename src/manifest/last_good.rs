//! The last good text of every manifest, in the private directory: the content of files that are
//! broken at the next start, and of a directory that is missing then.
//!
//! One file, accessible by its owner only, with a line for each change. It is a copy: if it is
//! damaged or too large, a start has only the files of the directory.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The maximum total size in bytes of the lines that are not outdated.
const MAX_BYTES: u64 = 256 << 20;
/// The size of outdated lines, beyond that of the others, at which the file is rewritten.
const STALE: u64 = 16 << 20;

/// The identity of a directory: device and inode.
pub(super) type Identity = (u64, u64);

/// The file.
pub(super) struct LastGood {
    path: PathBuf,
    root: PathBuf,
    most: u64,
    stale: u64,
    /// The total size of all lines, and of those that are not outdated.
    size: (u64, u64),
    /// The sizes of the lines that are not outdated.
    lengths: BTreeMap<PathBuf, u64>,
}

/// The content of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// The identity of the directory.
    pub(super) identity: Option<Identity>,
    /// The texts, by path relative to the directory.
    pub(super) texts: BTreeMap<PathBuf, Text>,
}

/// A text, and the time at which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) at: SystemTime,
    pub(super) text: String,
}

/// The first line of the file.
#[derive(Serialize, Deserialize)]
struct Head {
    root: PathBuf,
    device: u64,
    inode: u64,
}

/// Any other line of the file: the text of a manifest, or its deletion.
#[derive(Serialize, Deserialize)]
struct Line<'a> {
    file: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<std::borrow::Cow<'a, str>>,
}

impl LastGood {
    /// Reads the content for a directory; empty where the file is of another directory.
    pub(super) fn open(path: &Path, root: &Path) -> (Self, Kept) {
        let this = Self {
            path: path.to_owned(),
            root: root.to_owned(),
            most: MAX_BYTES,
            stale: STALE,
            size: (0, 0),
            lengths: BTreeMap::new(),
        };
        let kept = this.load();
        (this, kept)
    }

    /// Reads the file. A line that a crash truncated, and all lines after a damaged one, are
    /// ignored.
    fn load(&self) -> Kept {
        let mut kept = Kept::default();
        let Ok(file) = File::open(&self.path) else {
            return kept;
        };
        if file.metadata().map_or(u64::MAX, |meta| meta.len()) > 2 * (self.most + self.stale) {
            return kept;
        }
        let mut lines = BufReader::new(file).lines().map_while(Result::ok);
        let Some(head) = lines
            .next()
            .and_then(|line| serde_json::from_str::<Head>(&line).ok())
        else {
            return kept;
        };
        if head.root != self.root {
            return kept;
        }
        kept.identity = Some((head.device, head.inode));
        for line in lines {
            let Ok(Line { file, at, text }) = serde_json::from_str(&line) else {
                break;
            };
            match text {
                Some(text) => {
                    let at = UNIX_EPOCH + Duration::from_secs(at.unwrap_or_default());
                    kept.texts.insert(
                        file,
                        Text {
                            at,
                            text: text.into_owned(),
                        },
                    );
                }
                None => {
                    kept.texts.remove(&file);
                }
            }
        }
        kept
    }

    /// Rewrites the file.
    ///
    /// # Errors
    /// When the write fails, or the texts are too large.
    pub(super) fn replace(&mut self, kept: &Kept) -> io::Result<()> {
        let lengths = kept.texts.iter().map(|(file, Text { at, text })| {
            Ok((file.clone(), line(file, Some((*at, text)))?.len() as u64))
        });
        self.lengths = lengths.collect::<serde_json::Result<_>>()?;
        let all: u64 = self.lengths.values().sum();
        let (device, inode) = kept.identity.unwrap_or_default();
        if all > self.most {
            self.size = (0, all);
            let _ = fs::remove_file(&self.path);
            let most = self.most >> 20;
            return Err(io::Error::other(format!(
                "the manifests are more than {most} MiB, which are not kept"
            )));
        }
        crate::replace::replace(&self.path, |file| {
            let root = self.root.clone();
            serde_json::to_writer(
                &mut *file,
                &Head {
                    root,
                    device,
                    inode,
                },
            )?;
            file.write_all(b"\n")?;
            for (name, Text { at, text }) in &kept.texts {
                file.write_all(line(name, Some((*at, text)))?.as_bytes())?;
            }
            Ok(())
        })?;
        self.size = (all, all);
        Ok(())
    }

    /// Notes the text of a manifest, or its deletion (`None`).
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn note(&mut self, file: &Path, text: Option<(SystemTime, &str)>) -> io::Result<()> {
        let line = line(file, text)?;
        let length = line.len() as u64;
        let before = self.lengths.remove(file).unwrap_or_default();
        self.size = (self.size.0 + length, self.size.1 - before);
        if text.is_some() {
            self.lengths.insert(file.to_owned(), length);
            self.size.1 += length;
        }
        if self.size.1 > self.most {
            // It was reported when the limit was first exceeded.
            let _ = fs::remove_file(&self.path);
            return Ok(());
        }
        let mut out = match OpenOptions::new().append(true).open(&self.path) {
            // The file was removed since the texts were too large, or could not be written: the
            // next start creates it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        out.write_all(line.as_bytes())?;
        out.sync_data()?;
        if self.size.0 > 2 * self.size.1 + self.stale {
            let kept = self.load();
            self.replace(&kept)?;
        }
        Ok(())
    }
}

/// The line of a change, with its end.
fn line(file: &Path, text: Option<(SystemTime, &str)>) -> serde_json::Result<String> {
    fn seconds(at: SystemTime) -> u64 {
        at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
    }
    let (at, text) = text.unzip();
    let line = serde_json::to_string(&Line {
        file: file.to_owned(),
        at: at.map(seconds),
        text: text.map(Into::into),
    })?;
    Ok(line + "\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn kept(texts: &[(&str, u64, &str)]) -> Kept {
        Kept {
            identity: Some((3, 4)),
            texts: texts
                .iter()
                .map(|(name, seconds, text)| {
                    (
                        PathBuf::from(name),
                        Text {
                            at: at(*seconds),
                            text: (*text).to_owned(),
                        },
                    )
                })
                .collect(),
        }
    }

    #[test]
    fn a_noted_version_is_restored_for_the_same_directory_and_user_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("last-good");
        let root = Path::new("/etc/x");
        let (mut book, first) = LastGood::open(&path, root);
        assert_eq!(first, Kept::default());
        book.replace(&kept(&[
            ("a.yaml", 1, "a: 1\nb: \"2\"\n"),
            ("b.yaml", 2, "b"),
        ]))
        .expect("written");
        book.note(Path::new("b.yaml"), None).expect("written");
        book.note(Path::new("c.yaml"), Some((at(9), "c")))
            .expect("written");
        let all = kept(&[("a.yaml", 1, "a: 1\nb: \"2\"\n"), ("c.yaml", 9, "c")]);
        assert_eq!(LastGood::open(&path, root).1, all);
        assert_eq!(
            fs::metadata(&path).expect("there").permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            LastGood::open(&path, Path::new("/etc/y")).1,
            Kept::default()
        );

        // Only the truncated line is lost.
        let text = fs::read_to_string(&path).expect("text");
        fs::write(&path, text.clone() + "{\"file\": \"d.ya").expect("written");
        assert_eq!(LastGood::open(&path, root).1, all);
        for damaged in ["", "nonsense\n", "\0\0\0", &text[..10]] {
            fs::write(&path, damaged).expect("written");
            assert_eq!(
                LastGood::open(&path, root).1,
                Kept::default(),
                "{damaged:?}"
            );
        }
    }

    #[test]
    fn it_is_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("last-good");
        let root = Path::new("/etc/x");
        let (mut book, _) = LastGood::open(&path, root);
        book.most = 60;
        book.replace(&kept(&[("a.yaml", 1, "12345678")]))
            .expect("written");
        book.note(Path::new("b.yaml"), Some((at(1), "12345678")))
            .expect("not kept");
        assert!(!path.exists());
        let error = book
            .replace(&kept(&[("a.yaml", 1, &"1".repeat(60))]))
            .expect_err("too much")
            .to_string();
        assert!(error.contains("not kept"), "{error}");
        assert!(!path.exists());
    }

    #[test]
    fn it_is_written_anew_when_most_of_it_is_out_of_date() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("last-good");
        let root = Path::new("/etc/x");
        let (mut book, _) = LastGood::open(&path, root);
        book.replace(&kept(&[])).expect("written");
        let text = "x".repeat(6 << 20);
        for second in 0..8 {
            book.note(Path::new("a.yaml"), Some((at(second), &text)))
                .expect("written");
        }
        assert!(fs::metadata(&path).expect("there").len() < 40 << 20);
        assert_eq!(LastGood::open(&path, root).1, kept(&[("a.yaml", 7, &text)]));
    }

    #[test]
    fn names_escapes_and_deletions_count_as_well() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("last-good");
        let (mut book, _) = LastGood::open(&path, Path::new("/etc/x"));
        book.stale = 4096;
        book.replace(&kept(&[("kept.yaml", 1, "\n\n\n\n")]))
            .expect("written");
        let name = PathBuf::from("x".repeat(100));
        let mut most = 0;
        for second in 0..50 {
            book.note(&name, Some((at(second), "\n\n\n\n")))
                .expect("written");
            book.note(&name, None).expect("written");
            most = most.max(fs::metadata(&path).expect("there").len());
        }
        assert!(most > 3500, "it was written anew at {most} bytes");
        assert!(most < 5000, "it had {most} bytes");
    }
}
