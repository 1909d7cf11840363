//! The JSON document of a status, as it is written to Kubernetes.

use serde_json::{Map, Value, json};

use gatewright_objects::inputs::{Kind, ObjectKey, ParentRef, SetKind};
use gatewright_objects::model::{Condition, ConditionType, Status, StatusAddress, clipped};
use gatewright_objects::status::{ListenerStatus, ObjectStatus, StatusBody};
use gatewright_objects::status_maxima::{ADDRESSES, FEATURES, KINDS};

/// Builds the `status` of an object. `since` returns, in RFC 3339, `lastTransitionTime` of a
/// condition, which is identified by its path, e.g. `listeners/https/Programmed`.
pub fn status_document(
    status: &ObjectStatus,
    controller: &str,
    since: &dyn Fn(&str, &Condition) -> String,
) -> Value {
    let writer = Writer {
        generation: status.generation,
        since,
    };
    match &status.body {
        StatusBody::Class(class) => {
            let features = class.features.iter().map(|name| json!({"name": name}));
            let mut conditions = writer.conditions("", &class.conditions);
            json!({
                "supportedFeatures": with_room(
                    "supportedFeatures", features.collect(), FEATURES, &mut conditions),
                "conditions": conditions,
            })
        }
        StatusBody::Gateway(gateway) => {
            let addresses = gateway.addresses.iter().map(address);
            let mut conditions = writer.conditions("", &gateway.conditions);
            json!({
                "addresses": with_room(
                    "addresses", addresses.collect(), ADDRESSES, &mut conditions),
                "attachedListenerSets": gateway.attached_listener_sets,
                "conditions": conditions,
                "listeners": writer.listeners(&gateway.listeners),
            })
        }
        StatusBody::ListenerSet(set) => json!({
            "conditions": writer.conditions("", &set.conditions),
            "listeners": match set.kind {
                SetKind::Stable => writer.listeners(&set.listeners),
                SetKind::Experimental => writer.listeners_with_ports(&set.listeners),
            },
        }),
        StatusBody::Route(route) => json!({
            "parents": route.parents.iter().enumerate().map(|(index, (parent, conditions))| json!({
                "controllerName": controller,
                "parentRef": parent_ref(parent),
                "conditions": writer.conditions(&format!("parents/{index}/"), conditions),
            })).collect::<Vec<_>>(),
        }),
        StatusBody::Policy(policy) => json!({
            "ancestors": policy.ancestors.iter().map(|(ancestor, conditions)| json!({
                "controllerName": controller,
                "ancestorRef": {
                    "group": ancestor.kind.group(),
                    "kind": ancestor.kind.as_str(),
                    "namespace": &*ancestor.name.namespace,
                    "name": &*ancestor.name.name,
                },
                "conditions": writer.conditions(&place(ancestor), conditions),
            })).collect::<Vec<_>>(),
        }),
    }
}

/// The path of the conditions of an ancestor.
fn place(ancestor: &ObjectKey) -> String {
    let name = &ancestor.name;
    match ancestor.kind {
        Kind::Gateway => format!("ancestors/{name}/"),
        kind => format!("ancestors/{}/{name}/", kind.as_str()),
    }
}

/// Returns the first items of a list, as many as a status has room for. What is left out is said in
/// the message of a condition.
fn with_room(
    list: &str,
    mut items: Vec<Value>,
    maximum: usize,
    conditions: &mut [Value],
) -> Vec<Value> {
    if items.len() > maximum {
        let text = format!(
            "status.{list} has room for {maximum} of {} items",
            items.len()
        );
        items.truncate(maximum);
        add_to_message(conditions, &text);
    }
    items
}

/// Adds a sentence to the message of the condition that people read first.
pub fn add_to_message(conditions: &mut [Value], text: &str) {
    let first = position(ConditionType::Programmed, conditions)
        .or_else(|| position(ConditionType::Accepted, conditions))
        .unwrap_or_default();
    if let Some(condition) = conditions.get_mut(first) {
        condition["message"] = match condition["message"].as_str() {
            Some(message) if !message.is_empty() => json!(format!("{message}; {text}")),
            _ => json!(text),
        };
    }
}

fn position(kind: ConditionType, conditions: &[Value]) -> Option<usize> {
    conditions
        .iter()
        .position(|condition| condition["type"] == kind.as_str())
}

fn address(at: &StatusAddress) -> Value {
    let StatusAddress {
        address,
        routability,
    } = at;
    let mut made = json!({"type": address.kind(), "value": address.to_string()});
    if let Some(routability) = routability {
        made["routability"] = json!(routability.as_str());
    }
    made
}

struct Writer<'a> {
    generation: i64,
    since: &'a dyn Fn(&str, &Condition) -> String,
}

impl Writer<'_> {
    fn conditions(&self, place: &str, conditions: &[Condition]) -> Vec<Value> {
        conditions.iter().map(|condition| {
            json!({
                "type": condition.kind.as_str(),
                "status": match condition.status {
                    Status::True => "True",
                    Status::False => "False",
                    Status::Unknown => "Unknown",
                },
                "reason": condition.reason.as_str(),
                "message": clipped(condition.message.clone()),
                "observedGeneration": self.generation,
                "lastTransitionTime": (self.since)(&format!("{place}{}", condition.kind), condition),
            })
        }).collect()
    }

    fn listeners(&self, listeners: &[ListenerStatus]) -> Vec<Value> {
        listeners
            .iter()
            .map(|listener| {
                let kinds = listener
                    .supported_kinds
                    .iter()
                    .map(|(group, kind)| json!({"group": group, "kind": kind}));
                let mut conditions = self.conditions(
                    &format!("listeners/{}/", listener.name),
                    &listener.conditions,
                );
                json!({
                    "name": &*listener.name,
                    "attachedRoutes": listener.attached_routes,
                    "supportedKinds": with_room(
                        "listeners.supportedKinds", kinds.collect(), KINDS, &mut conditions),
                    "conditions": conditions,
                })
            })
            .collect()
    }

    /// The entries of an XListenerSet, whose schema requires a port other than 0.
    fn listeners_with_ports(&self, listeners: &[ListenerStatus]) -> Vec<Value> {
        let mut entries = self.listeners(listeners);
        for (entry, listener) in entries.iter_mut().zip(listeners) {
            entry["port"] = json!(listener.port);
        }
        entries.retain(|entry| entry["port"] != 0);
        entries
    }
}

/// Builds a parentRef as it was written in the route.
pub fn parent_ref(parent: &ParentRef) -> Value {
    let mut fields = Map::new();
    let texts = [
        ("group", &parent.group),
        ("kind", &parent.kind),
        ("namespace", &parent.namespace),
    ];
    for (field, text) in texts.into_iter().chain([("sectionName", &parent.section)]) {
        if let Some(text) = text {
            fields.insert(field.to_owned(), json!(text));
        }
    }
    fields.insert("name".to_owned(), json!(parent.name));
    if let Some(port) = parent.port {
        fields.insert("port".to_owned(), json!(port));
    }
    Value::Object(fields)
}
