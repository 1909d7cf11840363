//! Manifests: a directory of YAML and JSON files becomes changes of objects.
//!
//! In: files. Out: [`Change`](crate::translate::Change)s, and [`Problem`]s that name file, line and reason. What a file
//! means (`document`) and what a change of a file changes ([`Folder`]) is pure; [`Watcher`] reads and waits.

mod document;
mod folder;
mod scan;
mod watcher;

pub use document::{Parsed, Problem, parse};
pub use folder::{Folder, Outcome};
pub use scan::{Safety, read, scan};
pub use watcher::{WatchError, Watcher};
