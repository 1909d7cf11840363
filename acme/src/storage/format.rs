//! The format of a directory: a file with a number. A program that does not know the format leaves
//! the directory as it is, and says so.

use std::fs;
use std::io;
use std::path::Path;

use super::StorageError;
use super::dir::write_whole;

/// The name of the file.
pub const FILE: &str = "format";

/// Checks that a directory has a format that its reader knows. A directory without the file has
/// format 1.
///
/// # Errors
/// When a newer version wrote the directory, or the file cannot be read.
pub fn check(directory: &Path, known: u32) -> Result<(), StorageError> {
    let path = directory.join(FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => {
            return Err(StorageError::Io {
                doing: "reading",
                object: object(&path),
                why,
            });
        }
    };
    match text.trim().parse::<u32>() {
        Ok(format) if format <= known => Ok(()),
        Ok(format) => Err(StorageError::Newer {
            object: object(&path),
            format,
            known,
        }),
        // A power failure may leave it empty: whoever wrote it had not written anything else yet.
        Err(_) if text.trim_matches('\0').trim().is_empty() => Ok(()),
        Err(_) => Err(StorageError::Unreadable {
            path: object(&path),
            why: format!("expected a number, found {text:?}"),
        }),
    }
}

fn object(path: &Path) -> String {
    path.display().to_string()
}

/// Checks a directory, and records the format that is written from now on.
///
/// # Errors
/// As [`check`], or when the file cannot be written.
pub fn claim(directory: &Path, known: u32) -> Result<(), StorageError> {
    check(directory, known)?;
    let path = directory.join(FILE);
    let text = format!("{known}\n");
    match fs::read_to_string(&path) {
        Ok(there) if there == text => Ok(()),
        _ => write_whole(&path, text.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_format_is_refused_and_an_older_one_is_taken_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path();
        let file = dir.path().join(FILE);
        check(path, 1).expect("no file is format 1");
        assert!(!file.exists(), "a check writes nothing");
        for (there, known, written) in [
            ("1\n", 1, "1\n"),
            ("1\n", 2, "2\n"),
            ("", 1, "1\n"),
            ("\0\0", 3, "3\n"),
        ] {
            fs::write(&file, there).expect("written");
            claim(path, known).expect("it is known");
            assert_eq!(fs::read_to_string(&file).expect("there"), written);
        }
        for (there, words) in [
            ("7\n", ["format 7", "knows format 3", "format: "]),
            ("x", ["number", "\"x\"", "x"]),
        ] {
            fs::write(&file, there).expect("written");
            let refused = claim(path, 3).expect_err(there).to_string();
            assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
            assert_eq!(
                fs::read_to_string(&file).expect("there"),
                there,
                "nothing is changed"
            );
        }
    }
}
