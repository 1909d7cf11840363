//! What several settings of an AccessPolicy have: references to Secrets, ConfigMaps and Services,
//! what becomes of credentials, and headers in which backends are told who the client is.

use std::sync::Arc;

use serde::Deserialize;

use crate::inputs::text::{Refused, identity_header};
use crate::inputs::{Kind, LocalRef};
use crate::model::ObjectName;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenSecret {
    name: String,
    namespace: Option<String>,
}

impl WrittenSecret {
    /// The Secret that a field of a policy of `namespace` refers to.
    pub(super) fn target(self, field: &str, namespace: &Arc<str>) -> Result<LocalRef, String> {
        let Self {
            name,
            namespace: other,
        } = self;
        target(namespace, Kind::Secret, other, name).map_err(|why| format!("{field}.name: {why}"))
    }
}

/// Whether backends get what the client has sent to authenticate itself.
#[derive(Default, Deserialize)]
pub(super) enum Credentials {
    #[default]
    Forward,
    Remove,
}

impl Credentials {
    pub(super) fn are_forwarded(&self) -> bool {
        matches!(self, Self::Forward)
    }
}

/// A core object that a policy of `namespace` refers to, in that namespace or in another.
pub(super) fn target(
    namespace: &Arc<str>,
    kind: Kind,
    other: Option<String>,
    name: String,
) -> Result<LocalRef, String> {
    if name.is_empty() {
        return Err(format!("the name of a {} is needed", kind.as_str()));
    }
    let namespace = other
        .filter(|other| !other.is_empty())
        .map_or_else(|| namespace.clone(), Arc::from);
    Ok(LocalRef {
        group: kind.group().to_owned(),
        kind: kind.as_str().to_owned(),
        name: ObjectName::new(namespace, name),
    })
}

/// The lower-case name of a header in which backends are told who the client is.
pub(super) fn told_header(field: &str, name: &str) -> Result<Arc<str>, String> {
    identity_header(field, name).map_err(|Refused(why)| why)?;
    Ok(name.to_ascii_lowercase().into())
}

pub(super) fn at_most(field: &str, most: usize, found: usize) -> Result<(), String> {
    if found > most {
        return Err(format!("{field}: expected at most {most}, found {found}"));
    }
    Ok(())
}
