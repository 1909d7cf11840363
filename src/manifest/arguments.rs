//! The manifests that the arguments of a command name.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gatewright_control::in_order;
use gatewright_core::inputs::{Object, ObjectChange};

use super::document::parse_in;
use super::{Folder, Parsed, Problem, Trust, read, scan};

/// Reads the manifests of files, directories or standard input, with the problems of those that
/// cannot be read.
///
/// # Errors
/// When a path does not exist, or a directory has no manifests.
pub fn manifests(paths: &[PathBuf], trust: &Trust) -> Result<(Folder, Vec<Object>, Vec<Problem>)> {
    let mut folder = Folder::default();
    let mut changes = Vec::new();
    let mut problems = Vec::new();
    let mut add = |path: &Path, parsed: Parsed| {
        let outcome = folder.put(path, parsed);
        changes.extend(outcome.changes);
        problems.extend(outcome.problems);
    };
    let mut of_folders = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            let mut text = String::new();
            io::stdin()
                .lock()
                .take(64 << 20)
                .read_to_string(&mut text)
                .context("standard input")?;
            let namespace = trust.namespace.as_deref();
            add(path, parse_in(namespace, path, &text));
            continue;
        }
        // Paths are relative as in the argument, so that a place can be copied from the output.
        let root: PathBuf = path.components().collect();
        std::fs::metadata(&root).with_context(|| path.display().to_string())?;
        let (files, found) = scan(&root, &root, trust.safety);
        if files.is_empty() && found.is_empty() {
            bail!(
                "{}: no manifests: no file below it ends in .yaml, .yml or .json",
                path.display()
            );
        }
        in_order(
            &files,
            |file| read(&root, file, trust),
            |file, parsed| {
                if let Some(parsed) = parsed {
                    add(file, parsed);
                }
            },
        );
        of_folders.extend(found);
    }
    problems.extend(of_folders);
    let objects = changes.into_iter().filter_map(|change| match change {
        ObjectChange::Put(object) => Some(object),
        ObjectChange::Delete(_) => None,
    });
    let objects = objects.collect();
    Ok((folder, objects, problems))
}
