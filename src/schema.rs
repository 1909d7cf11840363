//! JSON schemas for people: what a field means, of the configuration and of kinds with a
//! definition.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use thiserror::Error;

/// A field that a document has none of.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}: no such field{}", advice(.instead, .known))]
pub struct NoField {
    /// Its path.
    pub path: String,
    /// The path of the field whose name is nearest.
    pub instead: Option<String>,
    /// The names of the fields that are there.
    pub known: Vec<String>,
}

/// How near a name must be for another to be meant, from 0 to 1.
const NEAR: f64 = 0.8;

fn advice(instead: &Option<String>, known: &[String]) -> String {
    match instead {
        Some(instead) => format!(": did you mean {instead}?"),
        None if known.is_empty() => ": it has no fields".to_owned(),
        None => format!(": there are {}", known.join(", ")),
    }
}

/// Returns the name among others that somebody may have meant.
pub fn nearest<'a>(name: &str, others: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let near = others.map(|other| (strsim::jaro_winkler(&lower, &other.to_lowercase()), other));
    near.filter(|(near, _)| *near >= NEAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, other)| other)
}

/// Returns the path of the field that somebody may have meant by a path, with the numbers of items,
/// of which only the last name is not there.
pub fn instead(root: &Value, path: &str) -> Option<String> {
    let (above, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut at = root;
    for part in above.split('.').filter(|part| !part.is_empty()) {
        at = field(at, part.split('[').next()?)?;
    }
    let instead = nearest(name, fields(at).map(|(name, _)| name.as_str()))?;
    Some(match above {
        "" => instead.to_owned(),
        above => format!("{above}.{instead}"),
    })
}

/// Explains a field of a document with its type, default and fields. Items of a list and values of
/// a map are passed over, so that a path is the names of the fields in order, with dots. The empty
/// path is the whole document, which has this name.
///
/// # Errors
/// When there is no field of that path.
pub fn explain(root: &Value, document: &str, path: &str) -> Result<String, NoField> {
    let mut at = root;
    let mut above = String::new();
    for name in path.split('.').filter(|name| !name.is_empty()) {
        let dotted = |name: &str| match above.as_str() {
            "" => name.to_owned(),
            above => format!("{above}.{name}"),
        };
        at = field(at, name).ok_or_else(|| {
            let known = || fields(at).map(|(name, _)| name.as_str());
            NoField {
                path: dotted(name),
                instead: nearest(name, known()).map(dotted),
                known: known().map(str::to_owned).collect(),
            }
        })?;
        above = dotted(name);
    }
    let mut text = String::new();
    let head = if path.is_empty() { document } else { path };
    writeln!(text, "{head} <{}>", kind(at)).expect("a String takes every write");
    for line in details(at) {
        writeln!(text, "  {line}").expect("a String takes every write");
    }
    let mut fields = fields(at).peekable();
    if fields.peek().is_some() {
        text.push_str("\nFields:\n");
    }
    for (name, schema) in fields {
        let required = if is_required(at, name) {
            " -required-"
        } else {
            ""
        };
        writeln!(text, "  {name} <{}>{required}", kind(schema))
            .expect("a String takes every write");
        for line in details(schema) {
            writeln!(text, "    {line}").expect("a String takes every write");
        }
    }
    Ok(text)
}

fn is_required(schema: &Value, name: &str) -> bool {
    let required = inner(schema).get("required").and_then(Value::as_array);
    required.is_some_and(|all| all.iter().any(|one| one == name))
}

/// The schema of a field of an object, of the objects of a list, or of the values of a map.
fn field<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let schema = inner(schema);
    schema
        .get("properties")
        .and_then(|properties| properties.get(name))
        .or_else(|| {
            schema
                .get("additionalProperties")
                .filter(|of| of.is_object())
        })
}

/// The named fields of an object, of the objects of a list, or of the values of a map.
pub(crate) fn fields(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let schema = inner(schema);
    let of = schema.get("properties").or_else(|| {
        let values = schema.get("additionalProperties")?;
        inner(values).get("properties")
    });
    of.and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
}

/// The schema of an item of a list, and what an optional value is where it is there.
pub(crate) fn inner(schema: &Value) -> &Value {
    if let Some(choices) = schema.get("anyOf").and_then(Value::as_array)
        && let Some(other) = choices.iter().find(|choice| !is_null(choice))
    {
        return inner(other);
    }
    schema.get("items").map_or(schema, inner)
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "null")
}

/// The type of a value, for people.
pub(crate) fn kind(schema: &Value) -> String {
    if let Some(items) = schema.get("items") {
        return format!("list of {}", kind(items));
    }
    let choices = ["anyOf", "oneOf"]
        .iter()
        .find_map(|of| schema.get(of))
        .and_then(Value::as_array);
    if let Some(choices) = choices {
        let names: Vec<String> = choices
            .iter()
            .filter(|one| !is_null(one))
            .map(kind)
            .collect();
        return names.join(" | ");
    }
    if let Some(value) = schema.get("const").and_then(Value::as_str) {
        return value.to_owned();
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let names: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        return names.join(" | ");
    }
    let name = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().find(|kind| *kind != "null"),
        other => other,
    };
    match name.and_then(Value::as_str) {
        Some("object")
            if schema
                .get("additionalProperties")
                .is_some_and(Value::is_object) =>
        {
            "map".to_owned()
        }
        Some(name) => name.to_owned(),
        None => "value".to_owned(),
    }
}

/// Description, range, default and values of a field, each as a line.
fn details(schema: &Value) -> Vec<String> {
    let mut lines: Vec<String> = description(schema).into_iter().collect();
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => lines.push(format!("From {least} to {most}.")),
        (None, Some(most)) => lines.push(format!("At most {most}.")),
        (Some(least), None) if least > 0.0 => lines.push(format!("At least {least}.")),
        _ => {}
    }
    for (least, most, what) in [
        ("minItems", "maxItems", "items"),
        ("minLength", "maxLength", "characters"),
        ("minProperties", "maxProperties", "fields"),
    ] {
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
        match (bound(least), bound(most)) {
            (Some(least), Some(most)) if least == most => lines.push(format!("{most} {what}.")),
            (Some(least), Some(most)) => lines.push(format!("{least} to {most} {what}.")),
            (None, Some(most)) => lines.push(format!("At most {most} {what}.")),
            (Some(least), None) => lines.push(format!("At least {least} {what}.")),
            (None, None) => {}
        }
    }
    if let Some(default) = default(schema) {
        lines.push(format!("Default: {default}"));
    }
    lines.extend(choices(schema).map(|(name, meaning)| format!("{name}: {meaning}")));
    lines
}

/// The description of a field, as one line.
pub(crate) fn description(schema: &Value) -> Option<String> {
    let text = schema.get("description")?.as_str()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The default of a value that is no object.
pub(crate) fn default(schema: &Value) -> Option<String> {
    match schema.get("default")? {
        Value::Null | Value::Object(_) => None,
        Value::Array(items) if items.is_empty() => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The values that a field may have, each with its meaning.
pub(crate) fn choices(schema: &Value) -> impl Iterator<Item = (&str, String)> {
    let of = inner(schema).get("oneOf").and_then(Value::as_array);
    of.into_iter()
        .flatten()
        .filter_map(|choice| Some((choice.get("const")?.as_str()?, description(choice)?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object",
            "properties": {
                "rateLimit": {"type": "array", "minItems": 1, "maxItems": 8, "description": "Limits.",
                    "items": {"type": "object", "required": ["limit"],
                        "properties": {"limit": {"type": "integer", "minimum": 1, "maximum": 9}}}},
                "name": {"type": "string", "maxLength": 63}}}}})
    }

    #[test]
    fn a_field_has_its_type_bounds_and_fields() {
        let text = explain(&schema(), "Thing", "spec.rateLimit").expect("there is one");
        assert_eq!(
            text,
            "spec.rateLimit <list of object>\n  Limits.\n  1 to 8 items.\n\nFields:\n  \
             limit <integer> -required-\n    From 1 to 9.\n"
        );
        let text = explain(&schema(), "Thing", "").expect("the whole");
        assert!(text.starts_with("Thing <object>"), "{text}");
        assert!(text.contains("spec <object> -required-"), "{text}");
        let text = explain(&schema(), "Thing", "spec.name").expect("there is one");
        assert!(text.contains("At most 63 characters."), "{text}");
    }

    #[test]
    fn the_nearest_field_is_named() {
        let of = |path| {
            let error = explain(&schema(), "Thing", path).expect_err("no such field");
            error.to_string()
        };
        assert_eq!(
            of("spec.ratelimits"),
            "spec.ratelimits: no such field: did you mean spec.rateLimit?"
        );
        assert_eq!(
            of("spec.zzz"),
            "spec.zzz: no such field: there are name, rateLimit"
        );
        assert_eq!(
            of("spec.name.x"),
            "spec.name.x: no such field: it has no fields"
        );
    }
}
