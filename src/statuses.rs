//! Every status as a document, as it would be written to Kubernetes: those of translation, of TenantGateways, and
//! the verdicts on claims at Gateways that somebody else serves. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::inputs::{Kind, ObjectKey};
use crate::model::Status;
use crate::pipeline::Pipeline;
use crate::tenancy::{self, Derived, DerivedKind, ParentState};
use crate::translate::{ObjectStatus, parent_ref, status_document};

/// Who knows what is not known here.
pub trait Context {
    /// The controller name of our entries.
    fn controller(&self) -> &str;
    /// The status of an object with what its Envoys say of it.
    fn lay_over(&self, key: &ObjectKey, status: &ObjectStatus) -> ObjectStatus;
    /// When a condition, named by where it stands, last changed its status; in RFC 3339.
    fn since(&self, key: &ObjectKey, place: &str, status: Status) -> String;
}

/// All statuses, each with the kind and name of its object, sorted by them.
pub fn documents(pipeline: &Pipeline, context: &dyn Context) -> Vec<Value> {
    let statuses = pipeline.engine().statuses();
    let laid: BTreeMap<&ObjectKey, ObjectStatus> =
        statuses.map(|(key, status)| (key, context.lay_over(key, &status))).collect();
    let mut all: BTreeMap<ObjectKey, Value> = laid
        .iter()
        .map(|(key, status)| {
            let since = |place: &str, condition: &crate::model::Condition| context.since(key, place, condition.status);
            ((*key).clone(), status_document(status, context.controller(), &since))
        })
        .collect();
    let tenancy = pipeline.tenancy();
    let look = |derived: &Derived| {
        let kind = match derived.kind {
            DerivedKind::Gateway => Kind::Gateway,
            DerivedKind::ListenerSet => Kind::ListenerSet,
            _ => return None,
        };
        laid.get(&ObjectKey::new(kind, derived.name.clone())).map(ParentState::from)
    };
    for name in tenancy.tenants() {
        let Some(status) = tenancy.status(name, &look) else { continue };
        let key = ObjectKey::new(Kind::TenantGateway, name.clone());
        let since = context.since(&key, "Ready", if status.ready { Status::True } else { Status::False });
        all.insert(key, status.document(&since));
    }
    for (claim, tenant, verdict) in tenancy.verdicts() {
        let key = claim.object();
        let own = tenancy.is_own(tenant);
        if key.kind == Kind::ListenerSet {
            // It has one list of conditions, which belongs to whoever serves it.
            let conditions = all.get_mut(&key).filter(|_| own).map(|document| &mut document["conditions"]);
            refuse(conditions.and_then(Value::as_array_mut), verdict);
            continue;
        }
        // What we serve has it among its own conditions; of a GRPCRoute nobody else tells anything.
        if own && key.kind != Kind::GRPCRoute {
            continue;
        }
        let status = if verdict.is_accepted() { Status::True } else { Status::False };
        let document = all.entry(key.clone()).or_insert_with(|| json!({"parents": []}));
        let Some(parents) = document["parents"].as_array_mut() else { continue };
        for (index, parent) in tenancy.parents(claim, tenant).into_iter().enumerate() {
            let since = context.since(&key, &format!("claims/{tenant}/{index}/Accepted"), status);
            parents.push(json!({
                "controllerName": tenancy::CONTROLLER,
                "parentRef": parent_ref(parent),
                "conditions": [{
                    "type": "Accepted",
                    "status": if status == Status::True { "True" } else { "False" },
                    "reason": verdict.reason.as_str(),
                    "message": verdict.message,
                    "observedGeneration": verdict.generation,
                    "lastTransitionTime": since,
                }],
            }));
        }
    }
    all.into_iter().map(|(key, status)| item(&key, status)).collect()
}

/// Lays a refusal over `Accepted`.
fn refuse(conditions: Option<&mut Vec<Value>>, verdict: &tenancy::Verdict) {
    let conditions = conditions.into_iter().flatten().filter(|condition| condition["type"] == "Accepted");
    for condition in conditions.filter(|_| !verdict.is_accepted()) {
        condition["status"] = json!("False");
        condition["reason"] = json!(verdict.reason.as_str());
        condition["message"] = json!(verdict.message);
    }
}

fn item(key: &ObjectKey, status: Value) -> Value {
    let mut metadata = json!({"name": &*key.name.name});
    if key.kind.namespaced() {
        metadata["namespace"] = json!(&*key.name.namespace);
    }
    json!({"apiVersion": key.kind.api_version(), "kind": key.kind.as_str(), "metadata": metadata, "status": status})
}
