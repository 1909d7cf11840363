//! The record of ownership as JSON, for people, and what a namespace claims and does not get.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ControlPlane;
use crate::visibility::Visibility;
use gatewright_core::inputs::{ObjectKey, RouteKey, SetKey};
use gatewright_core::model::Reason;
use gatewright_core::pipeline::Pipeline;
use gatewright_core::tenancy::ClaimKey;

fn time(seconds: u64) -> Option<Timestamp> {
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
}

/// The reasons that say that others have a hostname or a port.
const LOSSES: [Reason; 3] = [
    Reason::HostnameConflict,
    Reason::PortUnavailable,
    Reason::ProtocolConflict,
];

impl ControlPlane {
    /// Returns the owners of hostnames and ports. Of one namespace, these are what it owns, and
    /// then what it claims and others have, without a name of theirs.
    pub fn owners(&self, visibility: &Visibility) -> Value {
        let of = visibility.namespace();
        let owned = owner_rows(&self.pipeline, visibility);
        let lost = of.map(|namespace| self.losses(namespace));
        owned.chain(lost.into_iter().flatten()).collect()
    }

    /// Returns what objects of a namespace claim and do not get, with the words of their statuses.
    fn losses(&self, namespace: &Arc<str>) -> Vec<Value> {
        let statuses = self.engine().statuses_in(namespace);
        let of_statuses = statuses.flat_map(|(key, status)| {
            let conditions = status.conditions_of_listeners();
            let lost = conditions.filter(|(_, condition)| {
                LOSSES.contains(&condition.reason) && !condition.is_healthy()
            });
            lost.map(|(listener, condition)| {
                let what = match listener {
                    Some(listener) => format!("listener {listener} of {key}"),
                    None => key.to_string(),
                };
                loss(what, condition.reason, &condition.message)
            })
            .collect::<Vec<_>>()
        });
        let mut losses: Vec<Value> = of_statuses.chain(self.refused_claims(namespace)).collect();
        // A listener may have several conditions with one message.
        losses.dedup();
        losses
    }

    /// Returns the claims on hostnames of TenantGateways that are refused.
    fn refused_claims(&self, namespace: &Arc<str>) -> Vec<Value> {
        let store = self.engine().store();
        let routes = store.routes_in(namespace).into_iter();
        let sets = store.sets_in(namespace).into_iter();
        let claimants: Vec<ObjectKey> = routes
            .map(|key: RouteKey| key.object())
            .chain(sets.map(|key: SetKey| key.object()))
            .collect();
        let tenancy = self.pipeline.tenancy();
        claimants
            .iter()
            .filter_map(ClaimKey::of)
            .flat_map(|claim| {
                let verdicts = tenancy.verdicts_of(&claim);
                let refused = verdicts.filter(|(tenant, verdict)| {
                    !tenancy.is_own(tenant) && LOSSES.contains(&verdict.reason)
                });
                refused
                    .map(|(_, verdict)| {
                        loss(claim.object().to_string(), verdict.reason, &verdict.message)
                    })
                    .collect::<Vec<_>>()
            })
            .collect()
    }
}

fn loss(what: String, reason: Reason, message: &str) -> Value {
    json!({"what": what, "namespace": null, "reason": reason.as_str(), "message": message})
}

/// Returns the owners of hostnames and ports on addresses that namespaces share, and among tenants
/// of TenantGateways, from the record.
pub fn owner_rows(pipeline: &Pipeline, visibility: &Visibility) -> impl Iterator<Item = Value> {
    let of = visibility.namespace();
    let records = pipeline.records();
    let records =
        records.filter(move |(_, owner)| of.is_none_or(|namespace| owner.namespace == *namespace));
    records.map(|(what, owner)| {
        json!({
            "what": what.to_string(), "namespace": &*owner.namespace, "protocol": owner.protocol,
            "since": time(owner.since / 1000), "released": owner.released.and_then(time),
        })
    })
}
