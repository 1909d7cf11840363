//! Metadata of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::names::object_name;
use super::{Kind, ParseError};
use crate::model::ObjectName;

/// The parts of an object's metadata that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Namespace and name.
    pub name: ObjectName,
    /// `metadata.generation`; 1 where a manifest has none.
    pub generation: i64,
    /// `metadata.creationTimestamp` in seconds since the epoch; 0 where a manifest has none.
    pub created: i64,
}

impl Meta {
    pub(super) fn read(kind: Kind, meta: &ObjectMeta) -> Result<Self, ParseError> {
        Ok(Self {
            name: object_name(kind, meta)?,
            generation: meta.generation.unwrap_or(1),
            created: meta
                .creation_timestamp
                .as_ref()
                .map_or(0, |time| time.0.as_second()),
        })
    }
}
