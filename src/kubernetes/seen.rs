//! What the API server holds of an object that we write to.

use kube::core::DynamicObject;
use serde_json::Value;

/// Metadata and status of an object, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `metadata.uid`: another object of the same name has another.
    pub uid: String,
    /// `metadata.resourceVersion`
    pub version: String,
    /// `metadata.generation`
    pub generation: i64,
    /// The version that it was read in, e.g. `gateway.networking.k8s.io/v1`.
    pub api_version: String,
    /// `status` as JSON: parsed only when it is compared, which is rare, and a tenth of the size until then.
    status: Box<str>,
}

impl Seen {
    /// What there is of an object that was just read.
    pub fn new(api_version: &str, object: &DynamicObject) -> Self {
        Self {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            version: object.metadata.resource_version.clone().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or(1),
            api_version: api_version.to_owned(),
            status: object.data.get("status").map(Value::to_string).unwrap_or_default().into(),
        }
    }

    /// The status; null where there is none.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.status).unwrap_or_default()
    }
}
