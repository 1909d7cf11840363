//! Manifests: converts a directory of YAML and JSON files to changes of objects.
//!
//! In: files. Out: [`ObjectChange`](gatewright_core::inputs::ObjectChange)s, and [`Problem`]s with
//! file, line and reason. A Secret may have files in place of data, as far as [`Trust`] goes. Parsing
//! (`document`) and the changes of objects ([`Folder`]) are pure; `Reader` reads, and uses its last
//! good content where it cannot; [`Watcher`] waits for changes.

mod arguments;
mod cut;
mod document;
mod faults;
mod folder;
mod last_good;
mod named_files;
mod parts;
mod place;
#[cfg(test)]
mod plain_errors;
mod private_group;
mod reader;
mod scan;
mod stale;
mod trust;
mod unique_keys;
#[cfg(test)]
mod unreadable_policies;
mod watcher;
mod watches;
mod ways;

pub use arguments::manifests;
pub(crate) use document::values;
pub use document::{Parsed, Problem, ProblemKind, parse};
pub use folder::{Folder, Outcome};
pub(crate) use place::line_of;
pub use scan::{read, scan};
pub use stale::{ManifestMetrics, Served, Stale};
pub use trust::{Safety, SecretDirectory, SecretFiles, Trust};
pub(crate) use unique_keys::read_yaml;
pub use watcher::{WatchError, Watcher};
