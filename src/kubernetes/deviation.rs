//! The differences of an object from the manifest that we want: values that another writer or an
//! admission policy changed, and fields that it added. Pure.

use std::fmt;

use gatewright_core::model::clipped;
use serde_json::{Value, json};

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Deviation {
    /// The field.
    place: Place,
    /// The desired value; `None` for a field that we do not want.
    wanted: Option<Value>,
    /// The value of the object; `None` for a field that it lacks.
    there: Option<Value>,
}

/// A field of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The path for people: `spec.listeners[https].port`.
    shown: String,
    /// The JSON pointer into the object.
    pointer: String,
    /// The names of the fields alone: `spec.listeners.port`.
    pub(crate) fields: String,
    /// True below a list that the API server has as one field.
    pub(crate) is_in_atomic_list: bool,
}

/// Lists of derived objects whose items have owners of their own (`x-kubernetes-list-type: map`).
const BY_KEY: [&str; 2] = ["spec.listeners", "metadata.ownerReferences"];

impl Place {
    fn field(&self, name: &str) -> Self {
        let escaped = name.replace('~', "~0").replace('/', "~1");
        Self {
            shown: joined(&self.shown, name),
            pointer: format!("{}/{escaped}", self.pointer),
            fields: joined(&self.fields, name),
            is_in_atomic_list: self.is_in_atomic_list,
        }
    }

    fn item(&self, index: usize, name: Option<&str>) -> Self {
        let shown = name.map_or_else(|| index.to_string(), str::to_owned);
        let is_map = BY_KEY.iter().any(|field| self.fields.ends_with(field));
        Self {
            shown: format!("{}[{shown}]", self.shown),
            pointer: format!("{}/{index}", self.pointer),
            fields: self.fields.clone(),
            is_in_atomic_list: self.is_in_atomic_list || !is_map,
        }
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

impl Deviation {
    /// Returns whether it is a field that we do not want.
    pub(crate) fn is_added(&self) -> bool {
        self.wanted.is_none()
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn text(value: &Value) -> String {
            clipped(value.to_string().chars().take(120).collect())
        }
        match (&self.wanted, &self.there) {
            (Some(wanted), Some(there)) => {
                write!(
                    f,
                    "{} is {} in place of {}",
                    self.place.shown,
                    text(there),
                    text(wanted)
                )
            }
            (Some(wanted), None) => write!(f, "{} lacks {}", self.place.shown, text(wanted)),
            (None, _) => write!(f, "{} was added", self.place.shown),
        }
    }
}

/// Returns the JSON Patch that removes the added fields (RFC 6902).
pub(crate) fn removals(all: &[Deviation]) -> Vec<Value> {
    // The last first: a removed item moves those behind it.
    let added = all.iter().rev().filter(|deviation| deviation.is_added());
    added
        .map(|deviation| json!({"op": "remove", "path": deviation.place.pointer}))
        .collect()
}

/// Returns the JSON Patch that sets the changed fields in place (RFC 6902).
pub(crate) fn replacements(all: &[Deviation]) -> Vec<Value> {
    let changed = all.iter().filter(|deviation| deviation.there.is_some());
    changed.filter_map(|deviation| {
        Some(
            json!({"op": "replace", "path": deviation.place.pointer, "value": deviation.wanted.as_ref()?}),
        )
    }).collect()
}

/// Returns the differences, in the order of the fields. `may_have` returns whether the object may
/// have a field that the manifest does not have.
pub(crate) fn deviations(
    wanted: &Value,
    there: &Value,
    may_have: &dyn Fn(&Place) -> bool,
) -> Vec<Deviation> {
    let mut all = Vec::new();
    compare(
        &Place::default(),
        wanted,
        there,
        &mut Comparison {
            may_have,
            all: &mut all,
        },
    );
    all
}

struct Comparison<'a> {
    may_have: &'a dyn Fn(&Place) -> bool,
    all: &'a mut Vec<Deviation>,
}

impl Comparison<'_> {
    fn differs(&mut self, place: Place, wanted: &Value, there: Option<&Value>) {
        if !(is_empty(wanted) && there.is_none_or(is_empty)) {
            self.all.push(Deviation {
                place,
                wanted: Some(wanted.clone()),
                there: there.cloned(),
            });
        }
    }

    fn is_added(&mut self, place: Place, there: &Value) {
        if !is_empty(there) && !(self.may_have)(&place) {
            self.all.push(Deviation {
                place,
                wanted: None,
                there: Some(there.clone()),
            });
        }
    }
}

fn compare(place: &Place, wanted: &Value, there: &Value, comparison: &mut Comparison<'_>) {
    match (wanted, there) {
        (Value::Object(wanted), Value::Object(there)) => {
            for (name, wanted) in wanted {
                match there.get(name) {
                    Some(there) => compare(&place.field(name), wanted, there, comparison),
                    None => comparison.differs(place.field(name), wanted, None),
                }
            }
            for (name, there) in there.iter().filter(|(name, _)| !wanted.contains_key(*name)) {
                comparison.is_added(place.field(name), there);
            }
        }
        (Value::Array(wanted), Value::Array(there)) => match (names(wanted), names(there)) {
            (Some(names), Some(existing)) => {
                for (name, wanted) in names.iter().zip(wanted) {
                    match existing.iter().position(|existing| existing == name) {
                        Some(at) => {
                            compare(&place.item(at, Some(name)), wanted, &there[at], comparison)
                        }
                        None => {
                            comparison.differs(place.item(there.len(), Some(name)), wanted, None)
                        }
                    }
                }
                let more = existing
                    .iter()
                    .enumerate()
                    .filter(|(_, existing)| !names.contains(existing));
                for (at, name) in more {
                    comparison.all.push(Deviation {
                        place: place.item(at, Some(name)),
                        wanted: None,
                        there: Some(there[at].clone()),
                    });
                }
            }
            _ if wanted.len() == there.len() => {
                for (at, (wanted, there)) in wanted.iter().zip(there).enumerate() {
                    compare(&place.item(at, None), wanted, there, comparison);
                }
            }
            _ => comparison.differs(
                place.clone(),
                &Value::Array(wanted.clone()),
                Some(&Value::Array(there.clone())),
            ),
        },
        _ if wanted == there || is_same_amount(wanted, there) => {}
        _ => comparison.differs(place.clone(), wanted, Some(there)),
    }
}

/// Returns whether a value is the same to the API server as an absent field.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the names of the items of a list, if all have different ones: `name`, or `uid` of owner
/// references.
fn names(items: &[Value]) -> Option<Vec<&str>> {
    let names: Option<Vec<&str>> = items
        .iter()
        .map(|item| item.get("uid").or_else(|| item.get("name"))?.as_str())
        .collect();
    names.filter(|names| {
        names
            .iter()
            .enumerate()
            .all(|(at, name)| !names[..at].contains(name))
    })
}

/// Returns whether two texts are the same quantity of Kubernetes: the API server writes `1000m` as
/// `1`.
fn is_same_amount(one: &Value, other: &Value) -> bool {
    let one = one.as_str().and_then(amount);
    let other = other.as_str().and_then(amount);
    one.zip(other)
        .is_some_and(|(one, other)| (one - other).abs() <= f64::EPSILON * one.abs())
}

fn amount(text: &str) -> Option<f64> {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match &text[number.len()..] {
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(wanted: &Value, there: &Value) -> Vec<String> {
        deviations(wanted, there, &|place| place.fields == "spec.assigned")
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn wanted() -> Value {
        json!({"spec": {"class": "c", "empty": {}, "listeners": [
            {"name": "a", "port": 80, "refs": [{"kind": "S"}]}, {"name": "b", "port": 443}], "cpu": "1000m"}})
    }

    #[test]
    fn order_of_named_items_empty_fields_and_spelling_of_amounts_do_not_count() {
        let there = json!({"spec": {"class": "c", "listeners": [
            {"name": "b", "port": 443, "more": []}, {"name": "a", "port": 80, "refs": [{"kind": "S"}]}],
            "cpu": "1", "assigned": "10.0.0.1"}});
        assert_eq!(found(&wanted(), &there), Vec::<String>::new());
    }

    #[test]
    fn each_difference_names_its_field() {
        let there = json!({"spec": {"class": "d", "listeners": [
            {"name": "c", "port": 1}, {"name": "a", "port": 80, "refs": [{"kind": "S", "namespace": "x"}]}],
            "cpu": "2", "more": {"a": 1}}});
        let expected = [
            r#"spec.class is "d" in place of "c""#,
            r#"spec.cpu is "2" in place of "1000m""#,
            "spec.listeners[a].refs[0].namespace was added",
            r#"spec.listeners[b] lacks {"name":"b","port":443}"#,
            "spec.listeners[c] was added",
            "spec.more was added",
        ];
        assert_eq!(found(&wanted(), &there), expected);
        let expected = [
            "/spec/more",
            "/spec/listeners/0",
            "/spec/listeners/1/refs/0/namespace",
        ]
        .map(|path| json!({"op": "remove", "path": path}));
        assert_eq!(
            removals(&deviations(&wanted(), &there, &|_| false)),
            expected
        );
    }
}
