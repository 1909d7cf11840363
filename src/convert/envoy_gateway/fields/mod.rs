//! The fields of Envoy Gateway's kinds, below `spec`: what becomes of each.
//!
//! A row is a field with all that is below it; of several the longest counts.

mod backend_traffic;
mod client_traffic;
mod others;
mod proxy;
mod security;

use crate::convert::Row;
use crate::convert::row::{carried, differs};

/// The kinds, in the order of their names, each with its rows.
pub const FIELDS: &[(&str, &[&[Row]])] = &[
    ("Backend", &[others::BACKEND]),
    ("BackendTrafficPolicy", &[TARGETS, backend_traffic::ROWS]),
    ("ClientTrafficPolicy", &[TARGETS, client_traffic::ROWS]),
    ("EnvoyExtensionPolicy", &[TARGETS, others::EXTENSION]),
    ("EnvoyPatchPolicy", &[others::PATCH]),
    ("EnvoyProxy", &[proxy::ROWS]),
    ("HTTPRouteFilter", &[others::FILTER]),
    ("SecurityPolicy", &[TARGETS, security::ROWS]),
];

/// What all policies have.
const TARGETS: &[Row] = &[
    carried("targetRef", "targetRefs"),
    carried("targetRefs", "targetRefs"),
    differs(
        "targetSelectors",
        "targetRefs of the objects of the input with these labels: others are no targets",
    ),
];

/// The row of a field.
pub(super) fn row(kind: &str, path: &str) -> Option<&'static Row> {
    let (_, rows) = FIELDS.iter().find(|(name, _)| *name == kind)?;
    rows.iter()
        .copied()
        .flatten()
        .filter(|row| covers(row.name, path))
        .max_by_key(|row| row.name.len())
}

/// True if a row is about a field, or what it is below.
fn covers(row: &str, path: &str) -> bool {
    path.strip_prefix(row)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
