//! All statuses as JSON documents, as written to Kubernetes: those of the translation, of
//! TenantGateways, and the verdicts on claims at Gateways of other data planes. Pure.

mod cause;
mod condition_row;
mod selection;
mod summary;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::inputs::{Kind, ObjectKey, ParentRef};
use crate::model::{ConditionType, Reason, Status, clipped};
use crate::pipeline::Pipeline;
use crate::tenancy::{self, ClaimKey, Derived, DerivedKind, ParentState, Tenancy, Verdict};
use crate::translate::{ObjectStatus, StatusBody, parent_ref, status_document};

pub use self::cause::Cause;
pub use self::condition_row::{ConditionRow, condition_rows, is_desired, is_ok};
pub use self::selection::Selection;
pub use self::summary::{KindCount, Listed, Summary, summary};

/// The data for statuses that the core does not have.
pub trait Context {
    /// The controller name of our entries.
    fn controller(&self) -> &str;
    /// Adds the acknowledgements of Envoys to the status of an object.
    fn add_acknowledgements(&self, key: &ObjectKey, status: &ObjectStatus) -> ObjectStatus;
    /// `lastTransitionTime` of a condition, which is identified by its path; in RFC 3339.
    fn since(&self, key: &ObjectKey, place: &str, status: Status) -> String;
}

/// The statuses that are asked for, each with the kind and name of its object, sorted by them.
pub fn documents(pipeline: &Pipeline, context: &dyn Context, asked: &Selection) -> Vec<Value> {
    let engine = pipeline.engine();
    let keys: Vec<&ObjectKey> = engine.statuses().map(|(key, _)| key).collect();
    let asked = asked.resolved(engine.store(), keys.iter().copied());
    let statuses = engine.statuses().filter(|(key, _)| asked.has(key));
    let mut all: BTreeMap<ObjectKey, Value> = statuses
        .map(|(key, status)| {
            let status = context.add_acknowledgements(key, &status);
            let document = status_document(&status, context.controller(), &|place, condition| {
                context.since(key, place, condition.status)
            });
            (key.clone(), document)
        })
        .collect();
    let tenancy = pipeline.tenancy();
    let look = |derived: &Derived| {
        let kind = match derived.kind {
            DerivedKind::Gateway => Kind::Gateway,
            DerivedKind::ListenerSet => Kind::ListenerSet,
            _ => return None,
        };
        let key = ObjectKey::new(kind, derived.name.clone());
        let status = engine.status(&key)?;
        let status = context.add_acknowledgements(&key, &status);
        Some(Arc::new(ParentState::from(&status)))
    };
    for name in tenancy.tenants() {
        let key = ObjectKey::new(Kind::TenantGateway, name.clone());
        let Some(status) = Some(name)
            .filter(|_| asked.has(&key))
            .and_then(|name| tenancy.status(name, &look))
        else {
            continue;
        };
        let since = context.since(
            &key,
            "Ready",
            if status.ready {
                Status::True
            } else {
                Status::False
            },
        );
        all.insert(key, status.document(&since));
    }
    for (claim, tenant, verdict) in tenancy.verdicts() {
        let key = claim.object();
        if !asked.has(&key) {
            continue;
        }
        let own = tenancy.is_own(tenant);
        if claim.kind.is_set() {
            // It has a single list of conditions, which belongs to the controller that serves it.
            let conditions = all
                .get_mut(&key)
                .filter(|_| own)
                .map(|document| &mut document["conditions"]);
            refuse(conditions.and_then(Value::as_array_mut), verdict);
            continue;
        }
        // At a Gateway that we serve the verdict is in our own conditions.
        if own {
            continue;
        }
        let status = if verdict.is_accepted() {
            Status::True
        } else {
            Status::False
        };
        let document = all
            .entry(key.clone())
            .or_insert_with(|| json!({"parents": []}));
        let Some(parents) = document["parents"].as_array_mut() else {
            continue;
        };
        for (index, parent) in tenancy.parents(claim, tenant).into_iter().enumerate() {
            let since = context.since(&key, &format!("claims/{tenant}/{index}/Accepted"), status);
            parents.push(parent_status(parent, verdict, &since));
        }
    }
    all.into_iter()
        .map(|(key, status)| item(&key, status))
        .filter(|item| asked.has_document(item))
        .collect()
}

/// The kind, the metadata and the status of one object, as [`documents`] has it; `None` for one
/// without a status of ours.
pub fn document(pipeline: &Pipeline, context: &dyn Context, key: &ObjectKey) -> Option<Value> {
    let status = pipeline.engine().status(key).map(|status| {
        let mut status = context.add_acknowledgements(key, &status);
        refused(pipeline.tenancy(), key, &mut status);
        status_document(&status, context.controller(), &|place, condition| {
            context.since(key, place, condition.status)
        })
    });
    let (verdicts, _) = claims(pipeline.tenancy(), key, "");
    if status.is_none() && verdicts.is_empty() {
        return None;
    }
    let mut status = status.unwrap_or_else(|| json!({"parents": []}));
    if let Some(parents) = status["parents"].as_array_mut() {
        parents.extend(verdicts);
    }
    Some(item(key, status))
}

/// The entries of `status.parents` with the verdicts on a route's claims at Gateways of other data
/// planes, and the generation that they were computed from.
pub fn claims(tenancy: &Tenancy, key: &ObjectKey, now: &str) -> (Vec<Value>, i64) {
    let Some(claim) = ClaimKey::of(key).filter(|claim| !claim.kind.is_set()) else {
        return (Vec::new(), i64::MAX);
    };
    let mut entries = Vec::new();
    let mut generation = i64::MAX;
    for (tenant, verdict) in tenancy.verdicts_of(&claim) {
        if tenancy.is_own(tenant) {
            continue;
        }
        generation = generation.min(verdict.generation);
        entries.extend(
            tenancy
                .parents(&claim, tenant)
                .into_iter()
                .map(|parent| parent_status(parent, verdict, now)),
        );
    }
    (entries, generation)
}

/// Adds the refusal of a ListenerSet's claims, at a Gateway of ours, to its status.
pub fn refused(tenancy: &Tenancy, key: &ObjectKey, status: &mut ObjectStatus) {
    let Some(claim) = ClaimKey::of(key) else {
        return;
    };
    let StatusBody::ListenerSet(set) = &mut status.body else {
        return;
    };
    let verdict = tenancy
        .verdicts_of(&claim)
        .find(|(tenant, verdict)| tenancy.is_own(tenant) && !verdict.is_accepted());
    let Some((_, verdict)) = verdict else { return };
    for condition in set
        .conditions
        .iter_mut()
        .filter(|condition| condition.kind == ConditionType::Accepted)
    {
        condition.status = Status::False;
        condition.reason = verdict.reason;
        condition.message.clone_from(&verdict.message);
    }
}

fn parent_status(parent: &ParentRef, verdict: &Verdict, since: &str) -> Value {
    let mut reason = verdict.reason;
    let mut message = verdict.message.clone();
    if let Some((_, finding)) = verdict
        .parents
        .iter()
        .find(|(of, _)| verdict.is_accepted() && of == parent)
    {
        (reason, message) = finding.clone();
    }
    json!({
        "controllerName": tenancy::CONTROLLER,
        "parentRef": parent_ref(parent),
        "conditions": [{
            "type": "Accepted",
            "status": if reason == Reason::Accepted { "True" } else { "False" },
            "reason": reason.as_str(),
            "message": clipped(message),
            "observedGeneration": verdict.generation,
            "lastTransitionTime": since,
        }],
    })
}

/// Replaces `Accepted` by a refusal.
fn refuse(conditions: Option<&mut Vec<Value>>, verdict: &tenancy::Verdict) {
    let conditions = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] == "Accepted");
    for condition in conditions.filter(|_| !verdict.is_accepted()) {
        condition["status"] = json!("False");
        condition["reason"] = json!(verdict.reason.as_str());
        condition["message"] = json!(clipped(verdict.message.clone()));
    }
}

fn item(key: &ObjectKey, status: Value) -> Value {
    let mut metadata = json!({"name": &*key.name.name});
    if key.kind.namespaced() {
        metadata["namespace"] = json!(&*key.name.namespace);
    }
    json!({"apiVersion": key.kind.api_version(), "kind": key.kind.as_str(), "metadata": metadata, "status": status})
}
