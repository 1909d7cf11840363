//! The lists of a status whose items have owners of their own for the API server
//! (`x-kubernetes-list-type: map`): their comparison, what is left over in them, and their room.
//! Pure.
//!
//! An apply gives up an unwanted item, and the API server keeps what another field manager still
//! owns of it: a former controller of the class, or `before-first-apply` after a reset of
//! `metadata.managedFields`. Such leftovers are removed by a JSON Patch.

use serde_json::{Value, json};

use gatewright_core::model::ConditionType;
use gatewright_core::status_maxima::CONDITIONS;
use gatewright_core::translate::add_to_message;

/// Returns the field that identifies the items of a list; `None` for a list that is one field.
fn key(list: &str) -> Option<&'static str> {
    match list {
        "conditions" => Some("type"),
        "listeners" | "supportedFeatures" => Some("name"),
        _ => None,
    }
}

/// Returns whether an item that we do not want may stay: conditions of other types than ours are
/// of other controllers.
fn may_stay(list: &str, item: &Value) -> bool {
    list == "conditions" && !is_of_ours(item)
}

fn is_of_ours(condition: &Value) -> bool {
    ConditionType::ALL
        .iter()
        .any(|own| condition["type"] == own.as_str())
}

/// Returns the item of a list with this value of a field.
pub(crate) fn by_field<'a>(list: &'a Value, field: &str, value: &Value) -> Option<&'a Value> {
    list.as_array()?.iter().find(|one| &one[field] == value)
}

/// Returns whether all desired fields are present, and nothing is left over. Fields of other
/// managers are ignored.
pub(crate) fn agrees(field: &str, wanted: &Value, there: &Value) -> bool {
    match (field, wanted, there) {
        ("lastTransitionTime", ..) => true,
        (list, Value::Array(wanted), _) if key(list).is_some() => {
            let key = key(list).unwrap_or_default();
            wanted.iter().all(|one| {
                by_field(there, key, &one[key]).is_some_and(|there| agrees("", one, there))
            }) && !items(there).iter().any(|item| {
                !may_stay(list, item) && !wanted.iter().any(|one| one[key] == item[key])
            })
        }
        (_, Value::Array(wanted), Value::Null) => wanted.is_empty(),
        (_, Value::Array(wanted), Value::Array(there)) => {
            wanted.len() == there.len()
                && wanted
                    .iter()
                    .zip(there)
                    .all(|(wanted, there)| agrees("", wanted, there))
        }
        ("parentRef" | "ancestorRef", wanted, there) => reference(wanted) == reference(there),
        (_, Value::Object(wanted), _) => wanted
            .iter()
            .all(|(field, wanted)| agrees(field, wanted, &there[field])),
        (_, wanted, there) => wanted == there,
    }
}

/// Returns a parentRef or ancestorRef with the defaults of its schema.
pub(crate) fn reference(reference: &Value) -> [String; 6] {
    fn text(field: &str, default: &str, reference: &Value) -> String {
        match &reference[field] {
            Value::Null => default.to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
    [
        text("group", "gateway.networking.k8s.io", reference),
        text("kind", "Gateway", reference),
        text("namespace", "", reference),
        text("name", "", reference),
        text("sectionName", "", reference),
        text("port", "", reference),
    ]
}

/// Returns the JSON Patch (RFC 6902) that removes what is left over in a status: items of lists
/// that are wanted without them.
pub(crate) fn removals(wanted: &Value, there: &Value) -> Vec<Value> {
    let mut pointers = Vec::new();
    collect(wanted, there, "/status", &mut pointers);
    pointers
        .into_iter()
        .map(|pointer| json!({"op": "remove", "path": pointer}))
        .collect()
}

/// Collects the JSON pointers of leftovers, the last items of a list first: a removed item moves
/// those behind it.
fn collect(wanted: &Value, there: &Value, place: &str, pointers: &mut Vec<String>) {
    for (list, wanted) in wanted.as_object().into_iter().flatten() {
        let Some(key) = key(list) else { continue };
        for (index, item) in items(&there[list]).iter().enumerate().rev() {
            let place = format!("{place}/{list}/{index}");
            match by_field(wanted, key, &item[key]) {
                Some(wanted) => collect(wanted, item, &place, pointers),
                None if may_stay(list, item) => {}
                None => pointers.push(place),
            }
        }
    }
}

/// Leaves out conditions of ours for which a list has no room beside those of other controllers,
/// the least important ones, and says so in the message of the most important one.
pub(crate) fn leave_out_conditions(wanted: &mut Value, there: &Value) {
    let Value::Array(conditions) = wanted else {
        return;
    };
    let others = foreign_conditions(there).count();
    let room = CONDITIONS.saturating_sub(others);
    if conditions.len() <= room {
        return;
    }
    conditions.sort_by_key(|condition| {
        let place = ConditionType::ALL
            .iter()
            .position(|own| condition["type"] == own.as_str());
        place.unwrap_or(usize::MAX)
    });
    let left_out: Vec<String> = conditions
        .split_off(room)
        .iter()
        .filter_map(|condition| condition["type"].as_str().map(str::to_owned))
        .collect();
    let text = format!(
        "no room for the conditions {}: other controllers have {others} of {CONDITIONS}",
        left_out.join(", ")
    );
    add_to_message(conditions, &text);
}

/// Returns the conditions of other controllers.
pub(crate) fn foreign_conditions(there: &Value) -> impl Iterator<Item = &Value> {
    items(there).iter().filter(|item| !is_of_ours(item))
}

/// Keeps `lastTransitionTime` of conditions whose status has not changed.
pub(crate) fn keep_times(wanted: &mut Value, there: &Value) {
    for condition in wanted.as_array_mut().into_iter().flatten() {
        if let Some(old) = by_field(there, "type", &condition["type"])
            && old["status"] == condition["status"]
            && old["lastTransitionTime"].is_string()
        {
            condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
        }
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: &str) -> Value {
        json!({"type": kind, "status": "True", "message": "m"})
    }

    #[test]
    fn leftovers_of_each_list_are_removed_from_behind_and_foreign_conditions_stay() {
        let wanted = json!({
            "conditions": [condition("Accepted")],
            "supportedFeatures": [{"name": "Gateway"}],
            "listeners": [{"name": "one", "conditions": [condition("Accepted")]}],
        });
        let there = json!({
            "conditions": [condition("example.org/Theirs"), condition("Accepted"), condition("Conflicted")],
            "supportedFeatures": [{"name": "Gateway"}, {"name": "Old"}, {"name": "Older"}],
            "listeners": [
                {"name": "zero", "attachedRoutes": 0},
                {"name": "one", "conditions": [condition("Programmed"), condition("Theirs"), condition("Accepted")]},
                {"name": "two", "attachedRoutes": 0},
            ],
        });
        let expected = [
            "/status/conditions/2",
            "/status/listeners/2",
            "/status/listeners/1/conditions/0",
            "/status/listeners/0",
            "/status/supportedFeatures/2",
            "/status/supportedFeatures/1",
        ];
        let expected = expected.map(|path| json!({"op": "remove", "path": path}));
        assert_eq!(removals(&wanted, &there), expected);
        assert!(!agrees("", &wanted, &there), "something is left over");
        assert_eq!(removals(&wanted, &wanted), [] as [Value; 0]);
        assert!(agrees("", &wanted, &wanted), "nothing is left over");
    }

    #[test]
    fn lists_of_named_items_are_compared_in_any_order() {
        let wanted =
            json!({"supportedFeatures": [{"name": "A"}, {"name": "B"}], "addresses": [1, 2]});
        let there =
            json!({"supportedFeatures": [{"name": "B"}, {"name": "A"}], "addresses": [1, 2]});
        assert!(agrees("", &wanted, &there), "the order of features");
        let there =
            json!({"supportedFeatures": [{"name": "A"}, {"name": "B"}], "addresses": [2, 1]});
        assert!(!agrees("", &wanted, &there), "the order of addresses");
    }

    #[test]
    fn conditions_without_room_are_named_and_the_important_ones_written() {
        let ours = ["PartiallyInvalid", "ResolvedRefs", "Programmed", "Accepted"];
        for (theirs, written) in [(4, 4), (5, 3), (7, 1), (8, 0), (9, 0)] {
            let there: Vec<Value> = (0..theirs)
                .map(|number| condition(&format!("example.org/{number}")))
                .chain([condition("Accepted")])
                .collect();
            let mut wanted = json!(ours.map(condition));
            leave_out_conditions(&mut wanted, &json!(there));
            let kinds: Vec<&str> = items(&wanted)
                .iter()
                .filter_map(|condition| condition["type"].as_str())
                .collect();
            assert_eq!(kinds.len(), written, "beside {theirs}: {kinds:?}");
            if written == 3 {
                assert_eq!(kinds, ["Accepted", "Programmed", "ResolvedRefs"]);
                assert_eq!(
                    wanted[1]["message"],
                    "m; no room for the conditions PartiallyInvalid: other controllers have 5 of 8"
                );
            }
        }
    }
}
