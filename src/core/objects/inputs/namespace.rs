//! A Namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use super::{Meta, ParseError};

/// The label with a namespace's apex: the platform assigns the namespace the hostnames below it.
pub const HOST_LABEL: &str = "namespace.cozystack.io/host";

/// The label with the namespace whose Gateway a namespace may attach to.
pub const GATEWAY_LABEL: &str = "namespace.cozystack.io/gateway";

/// The annotation with the namespace of the TenantGateway for which we wrote the gateway label.
pub const ATTACHED_BY: &str = "cozystack.io/gateway-attached-by";

/// A Namespace: the labels for selectors, and the annotations that name the writer of a label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

impl Namespace {
    pub(super) fn read(meta: Meta, object: core::Namespace) -> Result<Self, ParseError> {
        let metadata = object.metadata;
        Ok(Self {
            name: meta.name.name.clone(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
        })
    }

    /// The namespace whose Gateway serves this one, if the platform says so: a label that the owner
    /// of a TenantGateway asked for does not count.
    pub fn gateway_of_platform(&self) -> Option<&str> {
        self.labels
            .get(GATEWAY_LABEL)
            .filter(|_| !self.annotations.contains_key(ATTACHED_BY))
            .map(String::as_str)
    }
}
