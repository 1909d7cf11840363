//! Ownership of fields by field managers: `metadata.managedFields`, parsed as trees. Pure.
//!
//! A tree is the value of `fieldsV1`: `f:NAME` is a field, `k:{...}` the item of a list with these
//! keys, `v:...` the item of a set with this value, and `.` the object itself
//! (structured-merge-diff, `fieldpath`).

use kube::core::DynamicObject;
use serde_json::{Map, Value, json};

use crate::FIELD_MANAGER;

/// Returns the managed fields of an object.
pub(super) fn of(object: &DynamicObject) -> Vec<Value> {
    let entries = object.metadata.managed_fields.iter().flatten();
    entries
        .map(|entry| serde_json::to_value(entry).unwrap_or_default())
        .collect()
}

/// Returns whether an entry is about a subresource, such as the status.
fn is_status(entry: &Value) -> bool {
    entry["subresource"]
        .as_str()
        .is_some_and(|subresource| !subresource.is_empty())
}

fn is_ours(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply"
}

/// Returns the fields that we applied; `None` when we never applied any.
pub(super) fn ours(managed: &[Value]) -> Option<Value> {
    let mut all = None;
    for entry in managed
        .iter()
        .filter(|entry| is_ours(entry) && !is_status(entry))
    {
        unite(all.get_or_insert_with(|| json!({})), &entry["fieldsV1"]);
    }
    all
}

/// Returns the other managers that own fields of the spec which we do not own, sorted.
pub(super) fn others(managed: &[Value]) -> Vec<String> {
    let own = ours(managed).unwrap_or_default();
    let foreign = managed
        .iter()
        .filter(|entry| !is_ours(entry) && !is_status(entry));
    let more = foreign.filter(|entry| !covers(&own["f:spec"], &entry["fieldsV1"]["f:spec"]));
    let mut names: Vec<String> = more
        .map(|entry| entry["manager"].as_str().unwrap_or_default().to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Returns whether other managers own only fields of the spec that `spec` has, so that an apply
/// takes them over.
pub(super) fn others_within(managed: &[Value], spec: &Value) -> bool {
    let foreign = managed
        .iter()
        .filter(|entry| !is_ours(entry) && !is_status(entry));
    foreign
        .into_iter()
        .all(|entry| within(&entry["fieldsV1"]["f:spec"], spec))
}

/// Returns managed fields in which we own the whole spec, so that an apply removes unwanted fields.
/// The ownership of statuses, labels and annotations is unchanged.
pub(super) fn taken_over(managed: &[Value], api_version: &str) -> Vec<Value> {
    let mut spec = Value::Null;
    let mut all: Vec<Value> = Vec::new();
    for entry in managed {
        let mut entry = entry.clone();
        if !is_status(&entry) && !is_ours(&entry) {
            let fields = entry["fieldsV1"].as_object_mut();
            if let Some(taken) = fields.and_then(|fields| fields.remove("f:spec")) {
                unite(&mut spec, &taken);
            }
            if entry["fieldsV1"].as_object().is_none_or(Map::is_empty) {
                continue;
            }
        }
        all.push(entry);
    }
    if spec.is_null() {
        return all;
    }
    match all
        .iter_mut()
        .find(|entry| is_ours(entry) && !is_status(entry))
    {
        Some(own) => unite(&mut own["fieldsV1"]["f:spec"], &spec),
        None => all.push(
            json!({"manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": api_version,
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": spec}}),
        ),
    }
    all
}

/// Returns the part of a value that a tree covers. A leaf of the tree covers its whole value.
pub(super) fn project(value: &Value, tree: &Value) -> Value {
    let inner: Vec<(&String, &Value)> = tree
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != ".")
        .collect();
    if inner.is_empty() {
        return value.clone();
    }
    match value {
        Value::Object(fields) => {
            let part = inner.iter().filter_map(|(name, subtree)| {
                let name = name.strip_prefix("f:")?;
                Some((name.to_owned(), project(fields.get(name)?, subtree)))
            });
            Value::Object(part.collect())
        }
        Value::Array(items) => Value::Array(
            items
                .iter()
                .filter_map(|item| {
                    let subtree = inner.iter().find(|(name, _)| is_item(name, item))?.1;
                    Some(project(item, subtree))
                })
                .collect(),
        ),
        other => other.clone(),
    }
}

/// Returns whether a tree covers only fields that a value has.
fn within(tree: &Value, value: &Value) -> bool {
    let Some(tree) = tree.as_object() else {
        return true;
    };
    tree.iter()
        .filter(|(name, _)| *name != ".")
        .all(|(name, subtree)| match (name.strip_prefix("f:"), value) {
            (Some(name), Value::Object(fields)) => {
                fields.get(name).is_some_and(|value| within(subtree, value))
            }
            (None, Value::Array(items)) => items
                .iter()
                .find(|item| is_item(name, item))
                .is_some_and(|item| within(subtree, item)),
            _ => false,
        })
}

/// Returns whether a tree covers all fields that were applied: a field that another manager changed
/// is not in it any more (server-side apply). A leaf of the tree covers its whole value.
pub(super) fn has(tree: &Value, applied: &Value) -> bool {
    let Some(tree) = tree.as_object() else {
        return false;
    };
    match applied {
        Value::Object(fields) => fields.iter().all(|(name, value)| {
            tree.get(&format!("f:{name}"))
                .is_some_and(|subtree| has_part(subtree, value))
        }),
        Value::Array(items) => items.iter().all(|item| {
            let mut named = tree.iter().filter(|(name, _)| is_item(name, item));
            named.any(|(_, subtree)| has_part(subtree, item))
        }),
        _ => true,
    }
}

fn has_part(subtree: &Value, part: &Value) -> bool {
    is_whole(subtree) || has(subtree, part)
}

/// Returns whether a tree is a leaf.
fn is_whole(tree: &Value) -> bool {
    tree.as_object()
        .is_some_and(|inner| inner.keys().all(|name| name == "."))
}

/// Returns whether `k:{"name":"x"}` or `v:"x"` matches an item.
fn is_item(name: &str, item: &Value) -> bool {
    if let Some(keys) = name.strip_prefix("k:") {
        return parsed(keys)
            .as_object()
            .is_some_and(|keys| keys.iter().all(|(key, value)| &item[key] == value));
    }
    name.strip_prefix("v:")
        .is_some_and(|value| parsed(value) == *item)
}

fn parsed(text: &str) -> Value {
    serde_json::from_str::<Value>(text).unwrap_or_default()
}

/// Adds the fields of one tree to another.
fn unite(all: &mut Value, more: &Value) {
    let Some(more) = more.as_object() else { return };
    if !all.is_object() {
        *all = json!({});
    }
    for (name, subtree) in more {
        unite(&mut all[name.as_str()], subtree);
    }
}

/// Returns whether every field of a tree is in another one. The owner of an atomic list owns its
/// items.
fn covers(all: &Value, some: &Value) -> bool {
    let Some(some) = some.as_object() else {
        return true;
    };
    some.iter()
        .filter(|(name, _)| *name != ".")
        .all(|(name, subtree)| match all.get(name) {
            Some(there) => there.as_object().is_some_and(Map::is_empty) || covers(there, subtree),
            None => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, spec: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "g/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": spec}})
    }

    fn listener(name: &str) -> (String, Value) {
        (
            format!("k:{{\"name\":\"{name}\"}}"),
            json!({".": {}, "f:name": {}, "f:tls": {"f:certificateRefs": {}}}),
        )
    }

    fn tree(listeners: &[&str]) -> Value {
        let all: Map<String, Value> = listeners.iter().map(|name| listener(name)).collect();
        json!({"f:gatewayClassName": {}, "f:listeners": all})
    }

    #[test]
    fn a_projection_has_what_is_ours_and_no_defaults_but_in_lists_that_are_one_field() {
        let live = json!({"gatewayClassName": "c", "more": 1, "listeners": [
            {"name": "a", "port": 1, "tls": {"mode": "Terminate", "certificateRefs": [{"name": "s", "kind": "Secret"}]}},
            {"name": "b"}]});
        let part = project(&live, &tree(&["a"]));
        let expected = json!({"gatewayClassName": "c", "listeners": [
            {"name": "a", "tls": {"certificateRefs": [{"name": "s", "kind": "Secret"}]}}]});
        assert_eq!(part, expected);
    }

    #[test]
    fn others_are_told_who_own_what_we_do_not() {
        let ours = entry(FIELD_MANAGER, "Apply", &tree(&["a"]));
        let same = entry("cozystack-controller", "Update", &tree(&["a"]));
        assert_eq!(others(&[ours.clone(), same.clone()]), Vec::<String>::new());
        let more = entry("kubectl-edit", "Update", &tree(&["a", "b"]));
        assert_eq!(
            others(&[ours.clone(), same.clone(), more]),
            ["kubectl-edit"]
        );
        let mut status = entry("cilium", "Update", &tree(&["b"]));
        status["subresource"] = json!("status");
        assert_eq!(others(&[ours, status]), Vec::<String>::new());
        assert_eq!(
            others(std::slice::from_ref(&same)),
            ["cozystack-controller"],
            "it is not ours yet"
        );
        fn spec(names: &[&str]) -> Value {
            fn listener(name: &&str) -> Value {
                json!({"name": name, "tls": {"certificateRefs": []}})
            }
            json!({"gatewayClassName": "c", "listeners": names.iter().map(listener).collect::<Vec<_>>()})
        }
        assert!(others_within(
            std::slice::from_ref(&same),
            &spec(&["a", "b"])
        ));
        assert!(!others_within(&[same], &spec(&["b"])));
    }

    #[test]
    fn a_specification_is_taken_over_and_the_rest_stays() {
        let mut theirs = entry("cozystack-controller", "Update", &tree(&["a", "b"]));
        theirs["fieldsV1"]["f:metadata"] = json!({"f:labels": {"f:x": {}}});
        let taken = taken_over(
            &[theirs.clone(), entry("edit", "Update", &tree(&["c"]))],
            "g/v1",
        );
        assert_eq!(taken.len(), 2, "{taken:?}");
        assert_eq!(
            taken[0]["fieldsV1"],
            json!({"f:metadata": {"f:labels": {"f:x": {}}}})
        );
        assert_eq!(taken[1]["fieldsV1"]["f:spec"], tree(&["a", "b", "c"]));
        assert_eq!(others(&taken), Vec::<String>::new());
        let ours = entry(FIELD_MANAGER, "Apply", &tree(&["a"]));
        let taken = taken_over(&[ours, theirs], "g/v1");
        assert_eq!(taken[0]["fieldsV1"]["f:spec"], tree(&["a", "b"]));
    }

    #[test]
    fn changes_of_others_are_seen_in_the_managed_fields() {
        let applied = json!({"spec": {"replicas": 2, "selector": {"a": "b"}, "containers": [{"name": "envoy", "image": "e"}]}});
        let tree = json!({"f:spec": {"f:replicas": {}, "f:selector": {},
            "f:containers": {"k:{\"name\":\"envoy\"}": {".": {}, "f:name": {}, "f:image": {}}}}});
        assert!(has(&tree, &applied));
        for path in [
            "/f:spec/f:replicas",
            "/f:spec/f:containers/k:{\"name\":\"envoy\"}/f:image",
        ] {
            let (parent, last) = path.rsplit_once('/').expect("a path");
            let mut less = tree.clone();
            less.pointer_mut(parent)
                .and_then(Value::as_object_mut)
                .expect("it is there")
                .remove(last);
            assert!(!has(&less, &applied), "{path}");
        }
        assert!(!has(&Value::Null, &applied), "we never applied it");
    }
}
