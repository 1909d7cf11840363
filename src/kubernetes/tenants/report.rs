//! Computes the status of a TenantGateway from the decisions of tenancy, the statuses of its
//! derived objects, and the problems of writes. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::watch::observed::ObservedObject;
use gatewright_core::model::ObjectName;
use gatewright_core::tenancy::{Listening, ParentState, TenantStatus};

/// Returns whether the status says `Ready` for the present generation of a TenantGateway. Then the
/// conditions of an earlier generation of its Gateway stay valid until newer ones are written: an
/// added or removed host must not affect the others.
pub(super) fn stands(seen: &ObservedObject, status: &Value) -> bool {
    let ready = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Ready");
    ready.is_some_and(|ready| {
        ready["status"] == "True" && ready["observedGeneration"] == seen.generation
    })
}

/// Parses the status of a Gateway or ListenerSet that its controller wrote. Conditions of an
/// earlier generation count only if the TenantGateway `stands`.
pub(super) fn state(seen: &ObservedObject, stands: bool) -> ParentState {
    let status = seen.status();
    let listener = |listener: &Value| {
        let conditions = &listener["conditions"];
        let name: Arc<str> = Arc::from(listener["name"].as_str()?);
        let accepted = holds(conditions, "Accepted", &stands, &seen.generation);
        let programmed = holds(conditions, "Programmed", &stands, &seen.generation);
        // Cilium sets this reason for a route kind that the listener's protocol does not support,
        // and serves the other kinds.
        let refs = conditions
            .as_array()
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == "ResolvedRefs");
        let resolved = refs
            .is_none_or(|refs| refs["status"] != "False" || refs["reason"] == "InvalidRouteKinds");
        Some((
            name,
            Listening {
                accepted,
                programmed,
                resolved,
            },
        ))
    };
    let listeners: BTreeMap<_, _> = status["listeners"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(listener)
        .collect();
    let pending = status["listeners"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(waits)
        .collect();
    let conditions = &status["conditions"];
    let accepted = holds(conditions, "Accepted", &stands, &seen.generation);
    let programmed = holds(conditions, "Programmed", &stands, &seen.generation);
    let is_behind = oldest(conditions).is_some_and(|observed| observed < seen.generation);
    ParentState {
        accepted,
        programmed,
        listeners,
        pending,
        is_behind,
    }
}

fn holds(conditions: &Value, kind: &str, stands: &bool, seen_generation: &i64) -> bool {
    let condition = conditions
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind);
    condition.is_some_and(|condition| {
        condition["status"] == "True"
            && (*stands
                || condition["observedGeneration"]
                    .as_i64()
                    .is_none_or(|observed| observed >= *seen_generation))
    })
}

fn waits(listener: &Value) -> Option<(Arc<str>, String)> {
    let conditions = listener["conditions"].as_array()?;
    let pending = conditions
        .iter()
        .find(|c| c["type"] == "Programmed" && c["reason"] == "Pending")?;
    Some((
        Arc::from(listener["name"].as_str()?),
        pending["message"].as_str()?.to_owned(),
    ))
}

/// Returns the oldest generation that the conditions of a Gateway or ListenerSet are about.
pub(super) fn observed_generation(seen: &ObservedObject) -> i64 {
    oldest(&seen.status()["conditions"]).unwrap_or_default()
}

fn oldest(conditions: &Value) -> Option<i64> {
    let all = conditions.as_array().into_iter().flatten();
    let counted = all
        .filter(|condition| condition["type"] == "Accepted" || condition["type"] == "Programmed");
    counted
        .filter_map(|condition| condition["observedGeneration"].as_i64())
        .min()
}

/// The problem of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// The reason of `Ready`.
    pub(super) reason: &'static str,
    /// The message.
    pub(super) text: String,
    /// True if the problem concerns one host, and no others.
    pub(super) of_one_host: bool,
}

/// Adds the problems of writes to a status: a TenantGateway with such a problem is not ready,
/// unless the problem concerns one host only. Problems of the TenantGateway itself have precedence.
pub(super) fn lay_troubles(status: &mut TenantStatus, troubles: &[Trouble]) {
    const WAITING: [&str; 4] = [
        "Reconciled",
        "GatewayNotAccepted",
        "GatewayNotProgrammed",
        "ListenersNotReady",
    ];
    if !WAITING.contains(&status.reason) || troubles.is_empty() {
        return;
    }
    let texts: Vec<&str> = troubles
        .iter()
        .take(4)
        .map(|trouble| trouble.text.as_str())
        .collect();
    let more = if troubles.len() > 4 {
        format!("; and {} more", troubles.len() - 4)
    } else {
        String::new()
    };
    let text = format!("{}{more}", texts.join("; "));
    match troubles.iter().find(|trouble| !trouble.of_one_host) {
        None if status.ready => status.message = format!("{}; {text}", status.message),
        graver => {
            status.ready = false;
            status.reason = graver
                .or(troubles.first())
                .map_or(status.reason, |trouble| trouble.reason);
            status.message = text;
        }
    }
}

/// Returns whether a status waits for other controllers, so that it may change in a moment.
pub(super) fn is_transient(status: &TenantStatus) -> bool {
    let comes_up = status.ready
        && status
            .listeners
            .iter()
            .any(|listener| listener.reason.is_some());
    comes_up
        || matches!(
            status.reason,
            "GatewayNotAccepted" | "GatewayNotProgrammed" | "ListenersNotReady"
        )
}

/// Returns the patch of the status; `None` when it is equal already, or the object has changed
/// since.
///
/// `current` is the status of `seen`. The result is a merge patch that is conditional on the
/// resource version: with server-side apply, a list that Cozystack's controller wrote would keep
/// its items. Conditions of other managers are kept.
pub(super) fn patch(
    name: &ObjectName,
    status: &TenantStatus,
    seen: &ObservedObject,
    current: &Value,
    now: &str,
) -> Option<Value> {
    if status.generation < seen.generation {
        return None;
    }
    let held = current["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let ready = held.iter().find(|condition| condition["type"] == "Ready");
    let value = if status.ready { "True" } else { "False" };
    let since = ready
        .filter(|ready| ready["status"] == value)
        .and_then(|ready| ready["lastTransitionTime"].as_str());
    let mut wanted = status.document(since.unwrap_or(now));
    let mut conditions: Vec<Value> = Vec::new();
    for condition in held {
        conditions.push(if condition["type"] == "Ready" {
            wanted["conditions"][0].clone()
        } else {
            condition.clone()
        });
    }
    if ready.is_none() {
        conditions.push(wanted["conditions"][0].clone());
    }
    wanted["conditions"] = Value::Array(conditions);
    if ["observedGeneration", "conditions", "listeners"]
        .into_iter()
        .all(|field| wanted[field] == current[field])
    {
        return None;
    }
    let metadata = json!({"name": &*name.name, "namespace": &*name.namespace, "uid": seen.uid, "resourceVersion": seen.version});
    Some(json!({"metadata": metadata, "status": wanted}))
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;

    use super::*;
    use gatewright_core::tenancy::ListenerState;

    const NOW: &str = "2026-06-07T08:09:10Z";

    fn seen(generation: i64, status: Value) -> ObservedObject {
        let object: DynamicObject = serde_json::from_value(json!({
            "metadata": {"name": "t", "namespace": "a", "uid": "u", "resourceVersion": "7", "generation": generation},
            "status": status}))
        .expect("an object");
        ObservedObject::new(&"x/v1".into(), &object)
    }

    fn status(reason: &'static str) -> TenantStatus {
        let listener = ListenerState {
            name: "http".into(),
            hostname: None,
            certificate: None,
            reason: None,
        };
        let ready = reason == "Reconciled";
        TenantStatus {
            generation: 2,
            ready,
            reason,
            message: "m".into(),
            listeners: vec![listener],
        }
    }

    fn check(status: &TenantStatus, seen: &ObservedObject) -> Option<Value> {
        patch(
            &ObjectName::new("a", "t"),
            status,
            seen,
            &seen.status(),
            NOW,
        )
    }

    #[test]
    fn it_is_written_once_and_keeps_its_time_and_the_conditions_of_others() {
        let theirs = json!({"type": "Theirs", "status": "True"});
        let listeners = json!([{"name": "left-by-another", "ready": true}]);
        let before = json!({"conditions": [theirs, {"type": "Ready", "status": "True", "reason": "Reconciled",
            "message": "old", "observedGeneration": 1, "lastTransitionTime": "2020-01-01T00:00:00Z"}],
            "listeners": listeners});
        let written = check(&status("Reconciled"), &seen(2, before)).expect("a difference");
        assert_eq!(written["status"]["conditions"][0], theirs);
        assert_eq!(
            written["status"]["conditions"][1]["lastTransitionTime"],
            "2020-01-01T00:00:00Z"
        );
        assert_eq!(
            written["status"]["listeners"],
            json!([{"name": "http", "ready": true}])
        );
        assert_eq!(written["metadata"]["resourceVersion"], "7");
        let there = seen(2, written["status"].clone());
        assert_eq!(check(&status("Reconciled"), &there), None);
        let worse = check(&status("ListenersNotReady"), &there).expect("a difference");
        assert_eq!(worse["status"]["conditions"][1]["lastTransitionTime"], NOW);
        assert_eq!(
            check(&status("Reconciled"), &seen(3, Value::Null)),
            None,
            "it changed since"
        );
    }

    #[test]
    fn a_failed_write_is_reported_unless_something_worse_is() {
        let text = "Certificate a/x: refused: no".to_owned();
        let mut troubles = [Trouble {
            reason: "ReconcileError",
            text,
            of_one_host: true,
        }];
        let mut told = status("Reconciled");
        lay_troubles(&mut told, &troubles);
        assert!(told.ready, "the tenant is ready");
        assert_eq!(told.reason, "Reconciled", "nothing worse is told");
        assert_eq!(
            &*told.message, "m; Certificate a/x: refused: no",
            "the failed write is told"
        );
        let mut told = status("ListenersNotReady");
        lay_troubles(&mut told, &troubles);
        assert!(!told.ready, "no host is served");
        assert_eq!(told.reason, "ReconcileError", "no host is served");
        troubles[0].of_one_host = false;
        let mut told = status("Reconciled");
        lay_troubles(&mut told, &troubles);
        assert!(!told.ready, "the tenant is not ready");
        assert_eq!(told.reason, "ReconcileError", "because of the write");
        assert_eq!(
            &*told.message, "Certificate a/x: refused: no",
            "its message is told"
        );
        let mut told = status("InvalidSpec");
        lay_troubles(&mut told, &troubles);
        assert_eq!(told.reason, "InvalidSpec");
        lay_troubles(&mut told, &[]);
        assert_eq!(told.reason, "InvalidSpec");
    }

    #[test]
    fn conditions_of_an_earlier_generation_do_not_count() {
        fn condition(kind: &str, generation: i64) -> Value {
            json!({"type": kind, "status": "True", "observedGeneration": generation})
        }
        let told = json!({"conditions": [condition("Accepted", 2), condition("Programmed", 1)],
            "listeners": [{"name": "l", "conditions": [condition("Accepted", 2), condition("Programmed", 2)]}]});
        fn state_of(stands: bool, told: &Value) -> ParentState {
            state(&seen(2, told.clone()), stands)
        }
        assert!(state_of(false, &told).accepted && !state_of(false, &told).programmed);
        let listening = Listening {
            accepted: true,
            programmed: true,
            resolved: true,
        };
        assert_eq!(state_of(false, &told).listeners.get("l"), Some(&listening));
        // A TenantGateway that is ready in this generation stays so until newer conditions are
        // written.
        assert!(state_of(true, &told).programmed);
        fn stays(generation: i64, status: &str) -> bool {
            let ready =
                json!({"type": "Ready", "status": status, "observedGeneration": generation});
            let seen = seen(2, json!({"conditions": [ready]}));
            stands(&seen, &seen.status())
        }
        assert!(stays(2, "True") && !stays(2, "False") && !stays(1, "True"));
    }

    #[test]
    fn references_count_and_kinds_of_routes_do_not() {
        fn told(reason: &str) -> bool {
            let refs = json!({"type": "ResolvedRefs", "status": "False", "reason": reason});
            let all = json!([{"type": "Accepted", "status": "True"}, {"type": "Programmed", "status": "True"}, refs]);
            let listeners = json!([{"name": "l", "conditions": all}]);
            state(&seen(1, json!({"listeners": listeners})), false).listeners["l"].resolved
        }
        assert!(
            told("InvalidRouteKinds") && !told("InvalidCertificateRef") && !told("RefNotPermitted")
        );
    }
}
