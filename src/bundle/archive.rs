//! The archive of a bundle: a tar file, compressed, with the table of contents first.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::contents::{Contents, Entry, State};
use super::redaction;
use crate::private_file;

/// The table of contents, for programs.
const CONTENTS: &str = "contents.json";
/// The same for people: the first file.
const TEXT: &str = "CONTENTS.md";
/// The largest bundle that is read, uncompressed: a larger one is no bundle of ours.
const BYTES: u64 = 2 << 30;

/// A bundle in memory.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The table of contents.
    pub contents: Contents,
    /// The files by path.
    files: BTreeMap<String, Vec<u8>>,
}

impl Bundle {
    /// An empty one.
    pub fn new(contents: Contents) -> Self {
        Self {
            contents,
            files: BTreeMap::new(),
        }
    }

    /// Adds a document. What must not be in it is left out.
    pub fn add_json(&mut self, path: &str, what: &str, document: Result<Value>) {
        let redacted = document.map(|mut document| {
            let count = redaction::of_document(&mut document);
            let text = serde_json::to_string_pretty(&document).expect("it was JSON") + "\n";
            (text, count)
        });
        self.add(path, what, redacted);
    }

    /// Adds a text. What must not be in it is left out.
    pub fn add_text(&mut self, path: &str, what: &str, text: Result<String>) {
        self.add(path, what, text.map(|text| redaction::of_text(&text)));
    }

    fn add(&mut self, path: &str, what: &str, content: Result<(String, usize)>) {
        let state = match content {
            Ok((text, redacted)) => {
                self.files.insert(path.to_owned(), text.into_bytes());
                State::Written { redacted }
            }
            Err(error) => State::NotRead {
                why: redaction::of_text(&format!("{error:#}")).0,
            },
        };
        self.note(path, what, state, None);
    }

    /// Adds the answer to a request.
    pub fn add_answer(&mut self, path: &str, request: String, mut answer: Value) {
        let redacted = redaction::of_document(&mut answer);
        self.files
            .insert(path.to_owned(), answer.to_string().into_bytes());
        let state = State::Written { redacted };
        let what = format!("answer to {request}");
        self.note(path, &what, state, Some(request));
    }

    /// Says of something why it is not there.
    pub fn leave_out(&mut self, path: &str, what: &str, state: State) {
        self.note(path, what, state, None);
    }

    fn note(&mut self, path: &str, what: &str, state: State, request: Option<String>) {
        self.contents.entries.push(Entry {
            path: path.to_owned(),
            what: what.to_owned(),
            state,
            request,
        });
    }

    /// Returns a document of the bundle.
    ///
    /// # Errors
    /// When it is not there: the text says why.
    pub fn document(&self, path: &str) -> Result<Value> {
        if let Some(bytes) = self.files.get(path) {
            return serde_json::from_slice(bytes).with_context(|| path.to_owned());
        }
        let mut entries = self.contents.entries.iter();
        match entries.find(|entry| entry.path == path).map(|of| &of.state) {
            Some(State::NotRead { why } | State::NotAsked { why }) => {
                bail!("{path} is not in the bundle: {why}")
            }
            _ => bail!("{path} is not in the bundle"),
        }
    }

    /// Reads an archive.
    ///
    /// # Errors
    /// When the file cannot be read, or is no bundle.
    pub fn open(file: &Path) -> Result<Self> {
        let place = file.display();
        let files = files(file).with_context(|| place.to_string())?;
        let contents = files
            .get(CONTENTS)
            .with_context(|| format!("{place}: no support bundle, it has no {CONTENTS}"))?;
        let contents = serde_json::from_slice(contents).with_context(|| CONTENTS.to_owned())?;
        Ok(Self { contents, files })
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn write(&self, output: impl Write) -> io::Result<()> {
        let contents = serde_json::to_string_pretty(&self.contents).expect("texts and numbers");
        let text = self.contents.text();
        let mut archive = tar::Builder::new(GzEncoder::new(output, Compression::default()));
        let first = [(TEXT, text.as_bytes()), (CONTENTS, contents.as_bytes())];
        let others = self.files.iter();
        let others = others.map(|(path, bytes)| (path.as_str(), bytes.as_slice()));
        for (path, bytes) in first.into_iter().chain(others) {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            let written = self.contents.written.as_second();
            header.set_mtime(u64::try_from(written).unwrap_or_default());
            archive.append_data(&mut header, path, bytes)?;
        }
        archive.into_inner()?.finish()?.flush()
    }
}

/// Writes a bundle into a new file that only its owner may read, or to standard output (`-`).
///
/// # Errors
/// When the file exists already, or cannot be written.
pub fn write(bundle: &Bundle, file: &Path) -> Result<()> {
    if file == Path::new("-") {
        return Ok(bundle.write(io::stdout().lock())?);
    }
    let opened = private_file::create(file)?;
    bundle
        .write(io::BufWriter::new(opened))
        .with_context(|| file.display().to_string())
}

/// The files of an archive, by their paths in it.
fn files(file: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let opened = std::fs::File::open(file)?;
    let mut archive = tar::Archive::new(GzDecoder::new(opened).take(BYTES));
    let mut files = BTreeMap::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        files.insert(path, bytes);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::super::contents::Of;
    use super::*;

    #[test]
    fn a_bundle_is_read_as_it_is_written_and_begins_with_its_contents() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("bundle.tar.gz");
        let mut bundle = Bundle::new(Contents::new(Of::Program));
        bundle.add_json("status.json", "statuses", Ok(json!({"password": "p"})));
        bundle.add_text("logs/a.log", "a log", Err(anyhow::anyhow!("no such file")));
        write(&bundle, &file).expect("written");
        let mode = std::fs::metadata(&file).expect("a file").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "for its owner alone");
        assert!(write(&bundle, &file).is_err(), "nothing is overwritten");

        let read = Bundle::open(&file).expect("a bundle");
        let expected = json!({"password": "[redacted]"});
        assert_eq!(read.document("status.json").expect("a file"), expected);
        let error = read.document("logs/a.log").expect_err("not there");
        assert!(error.to_string().contains("no such file"), "{error}");
        let opened = std::fs::File::open(&file).expect("a file");
        let mut archive = tar::Archive::new(GzDecoder::new(opened));
        let first = archive.entries().expect("entries").next();
        let first = first.expect("a file").expect("a file");
        assert_eq!(first.path().expect("a path"), Path::new(TEXT));
    }
}
