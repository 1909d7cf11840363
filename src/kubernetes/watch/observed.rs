//! The observed metadata and status of an object that we write to.

use std::sync::Arc;

use kube::core::DynamicObject;
use serde_json::Value;

use crate::compact_json::CompactJson;

/// Metadata and status of an object, as last seen in the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedObject {
    /// `metadata.uid`: differs for another object of the same name.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`
    pub version: Box<str>,
    /// `metadata.generation`
    pub generation: i64,
    /// `metadata.finalizers`
    pub finalizers: Box<[String]>,
    /// True if the object is being deleted (`deletionTimestamp` is set).
    pub is_deleting: bool,
    /// The version in which the object was read, e.g. `gateway.networking.k8s.io/v1`.
    pub api_version: Arc<str>,
    /// `status`: parsed only for a comparison, which is rare.
    status: CompactJson,
}

impl ObservedObject {
    /// Extracts the fields from an object that was just read.
    pub fn new(api_version: &Arc<str>, object: &DynamicObject) -> Self {
        Self {
            uid: object.metadata.uid.as_deref().unwrap_or_default().into(),
            version: object
                .metadata
                .resource_version
                .as_deref()
                .unwrap_or_default()
                .into(),
            generation: object.metadata.generation.unwrap_or(1),
            finalizers: object
                .metadata
                .finalizers
                .clone()
                .unwrap_or_default()
                .into(),
            is_deleting: object.metadata.deletion_timestamp.is_some(),
            api_version: api_version.clone(),
            status: CompactJson::new(&object.data["status"]),
        }
    }

    /// Returns the status; null where there is none.
    pub fn status(&self) -> Value {
        self.status.value()
    }
}

/// Returns whether one resource version of an object is newer than another (Kubernetes 1.35: they
/// are comparable numbers).
pub(crate) fn newer(one: &str, other: &str) -> bool {
    (one.len(), one) > (other.len(), other)
}
