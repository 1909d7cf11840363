//! A Namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A Namespace with the labels that selectors look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}
