//! The files of Rust below a folder, for tests of the house.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns them in the order of their paths.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    visit(folder, &mut found);
    found.sort();
    found
}

fn visit(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            visit(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
