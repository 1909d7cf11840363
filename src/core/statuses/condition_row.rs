//! The conditions of an object's status, each with the place where it stands.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{Condition, ConditionType};

/// A condition of an object, of one of its listeners, or at one of its parents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionRow {
    /// The object and the place: `gateway a/x listener l`, `httproute a/x at edge/l`.
    pub object: String,
    /// The namespace of the object; empty for one without.
    pub namespace: String,
    /// The kind of the object.
    pub kind: String,
    /// The type of the condition.
    pub condition: String,
    /// Its status: `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// True if the status is the desired one.
    pub ok: bool,
}

/// Returns the conditions of an object, given as a document with kind, metadata and status.
pub fn condition_rows(item: &Value) -> Vec<ConditionRow> {
    let mut rows = Vec::new();
    let namespace = string(&item["metadata"]["namespace"]);
    let kind = string(&item["kind"]);
    let name = string(&item["metadata"]["name"]);
    let object = if namespace.is_empty() {
        format!("{} {name}", kind.to_lowercase())
    } else {
        format!("{} {namespace}/{name}", kind.to_lowercase())
    };
    for (place, conditions) in places(&item["status"]) {
        rows.extend(all(conditions).map(|condition| ConditionRow {
            object: format!("{object}{place}"),
            namespace: namespace.to_owned(),
            kind: kind.to_owned(),
            condition: string(&condition["type"]).to_owned(),
            status: string(&condition["status"]).to_owned(),
            reason: string(&condition["reason"]).to_owned(),
            message: string(&condition["message"]).to_owned(),
            ok: is_desired(condition),
        }));
    }
    rows
}

/// True if every condition of an object is as desired.
pub fn is_ok(item: &Value) -> bool {
    places(&item["status"])
        .into_iter()
        .flat_map(|(_, conditions)| all(conditions))
        .all(is_desired)
}

/// Returns the lists of conditions of a status, each with its place: a listener, a parent or an
/// ancestor.
fn places(status: &Value) -> Vec<(String, &Value)> {
    let mut places = vec![(String::new(), &status["conditions"])];
    places.extend(all(&status["listeners"]).map(|listener| {
        let place = format!(" listener {}", string(&listener["name"]));
        (place, &listener["conditions"])
    }));
    places.extend(all(&status["parents"]).map(|parent| {
        let reference = &parent["parentRef"];
        let section = reference["sectionName"]
            .as_str()
            .map(|section| format!("/{section}"))
            .unwrap_or_default();
        let place = format!(" at {}{section}", string(&reference["name"]));
        (place, &parent["conditions"])
    }));
    places.extend(all(&status["ancestors"]).map(|ancestor| {
        let place = format!(" at {}", string(&ancestor["ancestorRef"]["name"]));
        (place, &ancestor["conditions"])
    }));
    places
}

/// True if a condition has the desired status. A type that translation does not know, as `Ready`
/// of tenancy, is desired to be true.
pub fn is_desired(condition: &Value) -> bool {
    let name = string(&condition["type"]);
    let is_true = condition["status"] == "True";
    ConditionType::ALL
        .iter()
        .find(|kind| kind.as_str() == name)
        .map_or(is_true, |kind| Condition::is_desired(*kind, is_true))
}

fn all(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_condition_of_an_object_its_listeners_parents_and_ancestors_has_a_row() {
        let conditions =
            json!([{"type": "Accepted", "status": "False", "reason": "Invalid", "message": "no"}]);
        fn object(kind: &str, status: Value) -> Value {
            json!({"kind": kind, "metadata": {"namespace": "a", "name": "x"}, "status": status})
        }
        let parent = json!({"name": "edge", "sectionName": "l"});
        let ancestor = json!({"name": "edge"});
        let items = [
            object(
                "Gateway",
                json!({"conditions": conditions, "listeners": [{"name": "l", "conditions": conditions}]}),
            ),
            object(
                "HTTPRoute",
                json!({"parents": [{"parentRef": parent, "conditions": conditions}]}),
            ),
            object(
                "BackendTLSPolicy",
                json!({"ancestors": [{"ancestorRef": ancestor, "conditions": conditions}]}),
            ),
        ];
        let rows: Vec<ConditionRow> = items.iter().flat_map(condition_rows).collect();
        let objects: Vec<&str> = rows.iter().map(|row| row.object.as_str()).collect();
        let expected = [
            "gateway a/x",
            "gateway a/x listener l",
            "httproute a/x at edge/l",
            "backendtlspolicy a/x at edge",
        ];
        assert_eq!(objects, expected);
        assert!(rows.iter().all(|row| !row.ok && row.reason == "Invalid"));
        assert!(
            !items.iter().any(is_ok),
            "each place of a condition is looked at"
        );
    }

    #[test]
    fn a_fault_is_desired_to_be_false_and_ready_to_be_true() {
        for (name, status, ok) in [
            ("Conflicted", "False", true),
            ("Conflicted", "True", false),
            ("OverlappingTLSConfig", "True", true),
            ("Ready", "True", true),
            ("Ready", "False", false),
            ("Programmed", "Unknown", false),
        ] {
            let item = json!({"status": {"conditions": [{"type": name, "status": status}]}});
            assert_eq!(is_ok(&item), ok, "{name}={status}");
        }
    }
}
