//! Records transitions of conditions as Events of the API (`events.k8s.io/v1`) on the object that
//! has the condition.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::Value;
use tokio::task::JoinSet;
use tracing::debug;

use super::super::FIELD_MANAGER;
use crate::write::request::{begin, in_time};
use gatewright_core::inputs::ObjectKey;

/// The maximum length of a note (`events.k8s.io/v1`, `note`).
const NOTE: usize = 1000;
/// The maximum number of Events being written. Further ones are dropped, since statuses have the
/// same information.
const AT_ONCE: usize = 64;

/// Records transitions once the status that has them is written.
pub struct EventRecorder {
    client: Client,
    pending: BTreeMap<ObjectKey, (String, Vec<Transition>)>,
    tasks: JoinSet<()>,
}

impl EventRecorder {
    /// Creates a recorder without pending transitions.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            pending: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Notes that a status is being written to the object of this UID, in place of the status
    /// `before`.
    pub fn note(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        before: &Value,
        after: &Value,
        kinds: &[&str],
    ) {
        let transitions = transitions(before, after, kinds);
        if transitions.is_empty() {
            self.pending.remove(key);
        } else {
            self.pending
                .insert(key.clone(), (uid.to_owned(), transitions));
        }
    }

    /// Takes in the outcome of the write: after a success the transitions are recorded.
    pub fn written(&mut self, key: &ObjectKey, done: bool) {
        while self.tasks.try_join_next().is_some() {}
        let Some((uid, transitions)) = self.pending.remove(key).filter(|_| done) else {
            return;
        };
        for transition in transitions {
            self.record(key, uid.clone(), transition);
        }
    }

    /// Records a problem that no status has, about the object of this UID.
    pub fn warn(&mut self, key: &ObjectKey, uid: &str, reason: &str, note: &str) {
        while self.tasks.try_join_next().is_some() {}
        let note = note.chars().take(NOTE).collect();
        self.record(
            key,
            uid.to_owned(),
            Transition {
                warning: true,
                reason: reason.to_owned(),
                note,
            },
        );
    }

    fn record(&mut self, key: &ObjectKey, uid: String, transition: Transition) {
        if self.tasks.len() >= AT_ONCE {
            debug!(
                "{key}: too many events: {} is not recorded",
                transition.reason
            );
            return;
        }
        let (client, key) = (self.client.clone(), key.clone());
        begin(&mut self.tasks, "event", &key.to_string(), async move {
            if let Err(failure) = in_time(record(client, &key, uid, transition)).await {
                debug!("{key}: event: {failure}");
            }
        });
    }

    /// Aborts the writes of Events.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// One transition of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Transition {
    /// True if the transition needs attention (`type: Warning`).
    warning: bool,
    reason: String,
    note: String,
}

/// Returns the transitions between two statuses: conditions of these types whose status or reason
/// changed. A first status without a problem has none.
fn transitions(before: &Value, after: &Value, kinds: &[&str]) -> Vec<Transition> {
    let known: Vec<(String, &Value)> = conditions(before);
    let changed = |(place, condition): &(String, &Value)| {
        let good = condition["status"] == "True";
        match known.iter().find(|(known, _)| known == place) {
            Some((_, old)) => {
                old["status"] != condition["status"]
                    || !good && old["reason"] != condition["reason"]
            }
            None => !good,
        }
    };
    let all = conditions(after)
        .into_iter()
        .filter(|(_, condition)| kinds.iter().any(|kind| condition["type"] == *kind));
    let mut found: Vec<Transition> = all
        .filter(changed)
        .map(|(_, condition)| Transition {
            warning: condition["status"] != "True",
            reason: condition["reason"].as_str().unwrap_or_default().to_owned(),
            note: condition["message"]
                .as_str()
                .unwrap_or_default()
                .chars()
                .take(NOTE)
                .collect(),
        })
        .collect();
    found.dedup();
    found
}

/// Returns the conditions of a status, and those of each parent of a route, each with a key of its
/// place.
fn conditions(status: &Value) -> Vec<(String, &Value)> {
    let mut all = placed("", status);
    for parent in status["parents"].as_array().into_iter().flatten() {
        // Fields that the server's defaults fill in are not part of the key.
        let place = ["namespace", "name", "sectionName"]
            .map(|field| {
                parent["parentRef"][field]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .join("/");
        all.extend(placed(
            &format!("{} {place} ", parent["controllerName"]),
            parent,
        ));
    }
    all
}

fn placed<'a>(place: &str, value: &'a Value) -> Vec<(String, &'a Value)> {
    let all = value["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    all.iter()
        .map(|condition| (format!("{place}{}", condition["type"]), condition))
        .collect()
}

/// Writes the Event of a transition, about the object of this UID.
async fn record(
    client: Client,
    key: &ObjectKey,
    uid: String,
    transition: Transition,
) -> kube::Result<()> {
    let namespace = if key.name.namespace.is_empty() {
        "default"
    } else {
        &*key.name.namespace
    };
    let now = Timestamp::now();
    // Names of Events have at most 253 bytes, and may not end with a dot.
    let head: String = key.name.name.chars().take(200).collect();
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{head}.{:x}", now.as_nanosecond())),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        action: Some("UpdateStatus".to_owned()),
        reason: Some(transition.reason),
        note: Some(transition.note),
        type_: Some(
            if transition.warning {
                "Warning"
            } else {
                "Normal"
            }
            .to_owned(),
        ),
        reporting_controller: Some("gatewright.io/gateway-controller".to_owned()),
        reporting_instance: Some(format!("{FIELD_MANAGER}-{}", std::process::id())),
        regarding: Some(ObjectReference {
            api_version: Some(key.kind.api_version()),
            kind: Some(key.kind.as_str().to_owned()),
            name: Some(key.name.name.to_string()),
            namespace: Some(key.name.namespace.to_string())
                .filter(|namespace| !namespace.is_empty()),
            uid: Some(uid),
            ..ObjectReference::default()
        }),
        ..Event::default()
    };
    Api::namespaced(client, namespace)
        .create(&PostParams::default(), &event)
        .await
        .map(|_: Event| ())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(value: &str, reason: &str) -> Value {
        json!({"conditions": [{"type": "Ready", "status": value, "reason": reason, "message": "m"}]})
    }

    fn reasons(before: &Value, after: &Value) -> Vec<(bool, String)> {
        transitions(before, after, &["Ready", "Accepted"])
            .into_iter()
            .map(|transition| (transition.warning, transition.reason))
            .collect()
    }

    #[test]
    fn a_transition_is_told_once_and_a_good_beginning_is_none() {
        let good = status("True", "Reconciled");
        let bad = status("False", "ListenersNotReady");
        assert_eq!(reasons(&Value::Null, &good), []);
        assert_eq!(
            reasons(&Value::Null, &bad),
            [(true, "ListenersNotReady".to_owned())]
        );
        assert_eq!(reasons(&bad, &good), [(false, "Reconciled".to_owned())]);
        assert_eq!(reasons(&bad, &bad), []);
        assert_eq!(
            reasons(&bad, &status("False", "ReconcileError")),
            [(true, "ReconcileError".to_owned())]
        );
    }

    #[test]
    fn each_parent_of_a_route_has_its_own() {
        fn parent(name: &str, value: &str, reason: &str) -> Value {
            let mut entry = status(value, reason);
            entry["conditions"][0]["type"] = json!("Accepted");
            entry["parentRef"] = json!({"name": name});
            entry
        }
        let before = json!({"parents": [parent("a", "True", "Accepted")]});
        let after = json!({"parents": [parent("a", "True", "Accepted"), parent("b", "False", "HostnameConflict")]});
        assert_eq!(
            reasons(&before, &after),
            [(true, "HostnameConflict".to_owned())]
        );
        assert_eq!(reasons(&after, &before), []);
    }
}
