//! Finds the files of a directory, and rejects those that other users may change.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Parsed, Problem, parse};

/// The maximum size of a file.
const FILE_BYTES: u64 = 64 << 20;
/// The maximum depth of a directory.
const MAX_DEPTH: usize = 32;

/// The safety checks of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Safety {
    /// Rejects symlinks out of the directory, and files that group or others may write.
    #[default]
    Strict,
    /// Accepts any file.
    Off,
}

/// Returns the manifest files at or under a path, sorted, and the problems of reaching them: nothing below the path of
/// a problem was examined.
pub fn scan(root: &Path, path: &Path, safety: Safety) -> (Vec<PathBuf>, Vec<Problem>) {
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    walk(root, path, safety, 0, &mut files, &mut problems);
    files.sort();
    (files, problems)
}

fn walk(root: &Path, path: &Path, safety: Safety, depth: usize, files: &mut Vec<PathBuf>, problems: &mut Vec<Problem>) {
    if hidden(root, path) {
        return;
    }
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        // A file without the suffix of a manifest is ignored.
        Err(_) if path.extension().is_some() && !is_manifest(path) => return,
        Err(error) => return problems.push(problem(path, format!("cannot be read: {error}"))),
    };
    if meta.is_file() {
        // A file that is the argument itself is read whatever its suffix.
        if is_manifest(path) || path == root {
            files.push(path.to_path_buf());
        }
        return;
    }
    if !meta.is_dir() {
        return;
    }
    if let Err(reason) = trusted(root, path, safety)
        .and_then(|()| if depth > MAX_DEPTH { Err(format!("deeper than {MAX_DEPTH} directories")) } else { Ok(()) })
    {
        problems.push(problem(path, reason));
        return;
    }
    let entries = fs::read_dir(path).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    match entries {
        Ok(entries) => {
            for entry in entries {
                walk(root, &entry.path(), safety, depth + 1, files, problems);
            }
        }
        // The directory may have been deleted meanwhile; it is examined again then.
        Err(error) => problems.push(problem(path, format!("cannot be read: {error}"))),
    }
}

/// Returns whether a path has the suffix of a manifest.
pub(super) fn is_manifest(path: &Path) -> bool {
    path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| matches!(ending, "yaml" | "yml" | "json"))
}

/// Returns whether a path has a component that begins with a dot, as files of editors and version control do.
fn hidden(root: &Path, path: &Path) -> bool {
    path.strip_prefix(root)
        .is_ok_and(|rest| rest.components().any(|part| part.as_os_str().to_string_lossy().starts_with('.')))
}

/// Reads and parses a file; `None` when it does not exist (any more).
pub fn read(root: &Path, path: &Path, safety: Safety) -> Option<Parsed> {
    read_text(root, path, safety).map(|(parsed, _)| parsed)
}

/// As [`read`], with the text if it could be read and all of it is valid.
pub(super) fn read_text(root: &Path, path: &Path, safety: Safety) -> Option<(Parsed, Option<String>)> {
    let file = fs::File::open(path);
    let refused = |reason| Some((Parsed { objects: Vec::new(), problems: vec![problem(path, reason)] }, None));
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => return refused(format!("cannot be read: {error}")),
    };
    if let Err(reason) = trusted(root, path, safety) {
        return refused(reason);
    }
    let mut bytes = Vec::new();
    match file.take(FILE_BYTES + 1).read_to_end(&mut bytes) {
        Err(error) => refused(format!("cannot be read: {error}")),
        Ok(_) if bytes.len() as u64 > FILE_BYTES => refused(format!("is larger than {} MiB", FILE_BYTES >> 20)),
        Ok(_) => match String::from_utf8(bytes) {
            Ok(text) => {
                let parsed = parse(path, &text);
                let good = parsed.problems.is_empty().then_some(text);
                Some((parsed, good))
            }
            Err(_) => refused("is not UTF-8".to_owned()),
        },
    }
}

fn trusted(root: &Path, path: &Path, safety: Safety) -> Result<(), String> {
    if safety == Safety::Off {
        return Ok(());
    }
    let flag = "or start with --allow-unsafe-manifests";
    let real = path.canonicalize().map_err(|error| format!("cannot be read: {error}"))?;
    let inside = root.canonicalize().is_ok_and(|root| real.starts_with(root));
    if !inside {
        return Err(format!("is a link to {}, outside of the directory: copy it there, {flag}", real.display()));
    }
    let mode = fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?.permissions().mode();
    if mode & 0o022 != 0 {
        return Err(format!("may be written by others (mode {:o}): chmod go-w, {flag}", mode & 0o777));
    }
    Ok(())
}

pub(super) fn problem(path: &Path, reason: String) -> Problem {
    Problem { path: Arc::new(path.to_path_buf()), line: 0, object: None, reason }
}
