//! Manifests: a directory of YAML and JSON files becomes changes of objects.
//!
//! In: files. Out: [`ObjectChange`](gatewright_core::inputs::ObjectChange)s, and [`Problem`]s that name file, line and reason. What a file
//! means (`document`) and what a change of a file changes ([`Folder`]) is pure; `Reader` reads, and goes by what it read before
//! where it cannot; [`Watcher`] waits.

mod document;
mod folder;
mod last_good;
mod reader;
mod scan;
mod stale;
mod watcher;

pub use document::{Parsed, Problem, parse};
pub use folder::{Folder, Outcome};
pub use scan::{Safety, read, scan};
pub use stale::{Figures, Stale};
pub use watcher::{WatchError, Watcher};
