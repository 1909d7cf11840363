//! The record of ownership as JSON, for people.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ControlPlane;
use gatewright_core::pipeline::Pipeline;

fn time(seconds: u64) -> Option<Timestamp> {
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
}

impl ControlPlane {
    /// Returns the owners of hostnames and ports.
    pub fn owners(&self) -> Value {
        owner_rows(&self.pipeline)
    }
}

/// Returns the owners of hostnames and ports on addresses that namespaces share, and among tenants
/// of TenantGateways, from the record.
pub fn owner_rows(pipeline: &Pipeline) -> Value {
    pipeline
        .records()
        .map(|(what, owner)| {
            json!({
                "what": what.to_string(), "namespace": &*owner.namespace, "protocol": owner.protocol,
                "since": time(owner.since / 1000), "released": owner.released.and_then(time),
            })
        })
        .collect()
}
