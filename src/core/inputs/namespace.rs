//! A Namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The label with a namespace's apex: the platform assigns the namespace the hostnames below it.
pub const HOST_LABEL: &str = "namespace.cozystack.io/host";

/// A Namespace: the labels for selectors, and the annotations that name the writer of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its UID; empty in a manifest without one.
    pub uid: String,
}
