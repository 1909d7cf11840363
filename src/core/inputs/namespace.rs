//! A Namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The label that tells a namespace's apex: the platform gives it the hostnames below.
pub const HOST_LABEL: &str = "namespace.cozystack.io/host";

/// A Namespace: the labels that selectors look at, and the annotations that tell who wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its UID; empty where nobody gave it one.
    pub uid: String,
}
