//! The finalizer of GatewayClasses: a class of ours is not deleted while a Gateway uses it (Gateway
//! API, GatewayClass: implementations SHOULD add it), since its Gateways would not be served any
//! more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::metrics::Writes;
use crate::watch::observed::ObservedObject;
use crate::write::failure::Failure;
use crate::write::request::{api, failed, in_time, resource};
use crate::write::worker::Worker;
use gatewright_core::inputs::{Kind, ObjectChange, ObjectKey};
use gatewright_core::store::Store;
use gatewright_core::translate::Change;

/// `GatewayClassFinalizerGatewaysExist` of the Gateway API.
const FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";
/// The maximum number of concurrent writes.
const AT_ONCE: usize = 2;

/// The writer of finalizers.
pub(crate) struct ClassFinalizers {
    client: Client,
    /// Our controller name.
    controller: String,
    worker: Worker<ObjectKey, ClassWritten>,
    /// True if a Gateway or a class has changed since all classes were queued.
    is_stale: bool,
    /// The classes whose failure was logged.
    told: BTreeSet<ObjectKey>,
}

/// The outcome of a write.
pub(crate) struct ClassWritten {
    class: ObjectKey,
    outcome: Result<(), Failure>,
}

impl ClassFinalizers {
    /// Creates the writer, with an empty queue.
    pub(crate) fn new(client: Client, controller: &str) -> Self {
        let controller = controller.to_owned();
        Self {
            client,
            controller,
            worker: Worker::new(AT_ONCE),
            is_stale: true,
            told: BTreeSet::new(),
        }
    }

    /// Takes in changes that are about to be applied to the store.
    pub(crate) fn see(&mut self, changes: &[Change]) {
        self.is_stale |= changes.iter().any(|change| match change {
            Change::Object(ObjectChange::Put(object)) => is_of_interest(object.key().kind),
            Change::Object(ObjectChange::Delete(key)) => is_of_interest(key.kind),
            _ => false,
        });
    }

    /// Queues every class for comparison.
    pub(crate) fn enqueue_all(&mut self) {
        self.is_stale = true;
    }

    /// Starts the queued writes.
    pub(crate) fn write(
        &mut self,
        store: &Store,
        seen: &BTreeMap<ObjectKey, Box<ObservedObject>>,
        may_write: bool,
    ) {
        let now = Instant::now();
        if std::mem::take(&mut self.is_stale) {
            let ours = store
                .classes()
                .filter(|class| class.controller == self.controller);
            for class in ours {
                self.worker.want(
                    ObjectKey::new(Kind::GatewayClass, class.meta.name.clone()),
                    now,
                );
            }
        }
        while let Some(class) = self.worker.take(now) {
            let is_used = store.has_gateways(&class.name.name);
            let patch = seen
                .get(&class)
                .filter(|_| may_write)
                .and_then(|seen| patch(seen, is_used));
            let Some(patch) = patch else {
                self.worker.done(&class);
                continue;
            };
            let api = api(
                self.client.clone(),
                &class,
                &resource(class.kind, &seen[&class].api_version),
            );
            self.worker
                .begin("finalizer", &class.to_string(), async move {
                    let params = PatchParams {
                        field_manager: Some(FIELD_MANAGER.to_owned()),
                        ..PatchParams::default()
                    };
                    let outcome =
                        in_time(api.patch(&class.name.name, &params, &Patch::Merge(&patch)))
                            .await
                            .map(drop);
                    ClassWritten { class, outcome }
                });
        }
    }

    /// Waits until a write has ended; `None` when a delayed retry is due.
    pub(crate) async fn next(&mut self) -> Option<ClassWritten> {
        self.worker.next().await
    }

    /// Takes in the outcome of a write.
    pub(crate) fn take_outcome(&mut self, written: Option<ClassWritten>) {
        let Some(ClassWritten { class, outcome }) = written else {
            return;
        };
        let Err(failure) = outcome else {
            self.told.remove(&class);
            return self.worker.done(&class);
        };
        self.worker.failed(&class, &failure, Instant::now());
        if !matches!(failure, Failure::Conflict | Failure::Gone) && self.told.insert(class.clone())
        {
            failed(
                &class,
                failure.class(),
                format!("writing the finalizer of {class}: {failure}"),
            );
        }
    }

    /// Returns the number of writes that were started, and of failures by class.
    pub(crate) fn metrics(&self) -> Writes {
        self.worker.metrics()
    }

    /// Waits for the writes in progress, and starts no more.
    pub(crate) async fn stop(self) {
        self.worker.finish().await;
    }
}

fn is_of_interest(kind: Kind) -> bool {
    matches!(kind, Kind::Gateway | Kind::GatewayClass)
}

/// Returns the patch that adds or removes the finalizer; `None` where the class is as it should be.
/// To a class that is being deleted no finalizer can be added.
fn patch(seen: &ObservedObject, is_used: bool) -> Option<Value> {
    let has = seen
        .finalizers
        .iter()
        .any(|finalizer| finalizer == FINALIZER);
    if has == is_used || is_used && seen.is_deleting {
        return None;
    }
    let others = seen
        .finalizers
        .iter()
        .map(String::as_str)
        .filter(|finalizer| *finalizer != FINALIZER);
    let all: Vec<&str> = others.chain(is_used.then_some(FINALIZER)).collect();
    Some(json!({"metadata": {"uid": seen.uid, "resourceVersion": seen.version, "finalizers": all}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(finalizers: &[&str], is_deleting: bool, is_used: bool) -> Option<Value> {
        let deleted = if is_deleting {
            json!("2026-01-01T00:00:00Z")
        } else {
            Value::Null
        };
        let object = serde_json::from_value(
            json!({"metadata": {"name": "c", "uid": "u", "resourceVersion": "7",
            "finalizers": finalizers, "deletionTimestamp": deleted}}),
        )
        .expect("an object");
        patch(&ObservedObject::new(&"v1".into(), &object), is_used)
            .map(|patch| patch["metadata"]["finalizers"].clone())
    }

    #[test]
    fn a_class_has_the_finalizer_while_it_is_used() {
        assert_eq!(
            check(&["theirs"], false, true),
            Some(json!(["theirs", FINALIZER]))
        );
        assert_eq!(
            check(&["theirs", FINALIZER], false, true),
            None,
            "it has it"
        );
        assert_eq!(
            check(&[FINALIZER, "theirs"], false, false),
            Some(json!(["theirs"])),
            "others keep theirs"
        );
        assert_eq!(
            check(&[FINALIZER], true, false),
            Some(json!([])),
            "the deletion goes on"
        );
        assert_eq!(check(&[FINALIZER], true, true), None, "the deletion waits");
        assert_eq!(
            check(&["theirs"], true, true),
            None,
            "the API server refuses it now"
        );
        assert_eq!(check(&[], false, false), None, "nothing to remove");
    }
}
