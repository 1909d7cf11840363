//! What the API server holds of an object that we write to.

use std::sync::Arc;

use kube::core::DynamicObject;
use serde_json::Value;

use crate::compact_json::CompactJson;

/// Metadata and status of an object, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedObject {
    /// `metadata.uid`: another object of the same name has another.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`
    pub version: Box<str>,
    /// `metadata.generation`
    pub generation: i64,
    /// The version that it was read in, e.g. `gateway.networking.k8s.io/v1`.
    pub api_version: Arc<str>,
    /// `status`: parsed only when it is compared, which is rare.
    status: CompactJson,
}

impl ObservedObject {
    /// What there is of an object that was just read.
    pub fn new(api_version: &Arc<str>, object: &DynamicObject) -> Self {
        Self {
            uid: object.metadata.uid.as_deref().unwrap_or_default().into(),
            version: object.metadata.resource_version.as_deref().unwrap_or_default().into(),
            generation: object.metadata.generation.unwrap_or(1),
            api_version: api_version.clone(),
            status: CompactJson::new(&object.data["status"]),
        }
    }

    /// The status; null where there is none.
    pub fn status(&self) -> Value {
        self.status.value()
    }
}

/// Whether one resource version of an object is newer than another (Kubernetes 1.35: they are comparable numbers).
pub(crate) fn newer(one: &str, other: &str) -> bool {
    (one.len(), one) > (other.len(), other)
}
