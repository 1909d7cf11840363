//! `gatewright config explain`: what a field means, from the schema.

use std::fmt::Write as _;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::Configuration;

/// The JSON schema of the document (draft 7), without references.
pub fn schema() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    let schema = settings
        .into_generator()
        .into_root_schema_for::<Configuration>();
    schema.to_value()
}

/// Explains a field with its type, default and fields; `None` if there is none of that path. The
/// empty path is the whole document.
pub fn explain(path: &str) -> Option<String> {
    let root = schema();
    let mut at = &root;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        at = field(at, name)?;
    }
    let mut text = String::new();
    let head = if path.is_empty() {
        "Configuration"
    } else {
        path
    };
    writeln!(text, "{head} <{}>", kind(at)).expect("a String takes every write");
    for line in details(at) {
        writeln!(text, "  {line}").expect("a String takes every write");
    }
    let fields: Vec<_> = fields(at).collect();
    if !fields.is_empty() {
        text.push_str("\nFields:\n");
    }
    for (name, schema) in fields {
        writeln!(text, "  {name} <{}>", kind(schema)).expect("a String takes every write");
        for line in details(schema) {
            writeln!(text, "    {line}").expect("a String takes every write");
        }
    }
    Some(text)
}

/// A field of the document, for the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its path, with `[]` for the items of a list and `NAME` for the values of a map.
    pub path: String,
    /// Its type.
    pub kind: String,
    /// Its default, if it is a value.
    pub default: Option<String>,
    /// Its meaning, and that of each of its values.
    pub description: String,
}

/// All fields of the document, each before those below it.
pub fn reference() -> Vec<Field> {
    let mut all = Vec::new();
    collect(&schema(), "", &mut all);
    all
}

fn collect(schema: &Value, path: &str, all: &mut Vec<Field>) {
    for (name, of) in fields(schema) {
        let values = inner(schema).get("properties").is_none();
        let path = match path {
            "" => name.clone(),
            path if values => format!("{path}.NAME.{name}"),
            path => format!("{path}.{name}"),
        };
        let mut lines: Vec<String> = description(of).into_iter().collect();
        lines.extend(choices(of).map(|(name, meaning)| format!("`{name}`: {meaning}")));
        all.push(Field {
            path: path.clone(),
            kind: kind(of),
            default: default(of),
            description: lines.join(". "),
        });
        let is_list = of.get("items").is_some();
        let below = if is_list { format!("{path}[]") } else { path };
        collect(of, &below, all);
    }
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
fn fields(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
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
fn inner(schema: &Value) -> &Value {
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
fn kind(schema: &Value) -> String {
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
    if let Some(default) = default(schema) {
        lines.push(format!("Default: {default}"));
    }
    lines.extend(choices(schema).map(|(name, meaning)| format!("{name}: {meaning}")));
    lines
}

/// The description of a field, as one line.
fn description(schema: &Value) -> Option<String> {
    let text = schema.get("description")?.as_str()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The default of a value that is no object.
fn default(schema: &Value) -> Option<String> {
    match schema.get("default")? {
        Value::Null | Value::Object(_) => None,
        Value::Array(items) if items.is_empty() => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The values that a field may have, each with its meaning.
fn choices(schema: &Value) -> impl Iterator<Item = (&str, String)> {
    let of = inner(schema).get("oneOf").and_then(Value::as_array);
    of.into_iter()
        .flatten()
        .filter_map(|choice| Some((choice.get("const")?.as_str()?, description(choice)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_explained_with_type_default_and_range() {
        let text = explain("lease.seconds").expect("there is one");
        assert!(text.starts_with("lease.seconds <integer>\n"), "{text}");
        assert!(text.contains("From 3 to 600."), "{text}");
        assert!(text.contains("Default: 15"), "{text}");
        let text = explain("tenancy.certificates").expect("there is one");
        assert!(text.contains("Own: This program, by ACME"), "{text}");
        assert!(explain("lease.second").is_none(), "no such field");
    }

    #[test]
    fn fields_of_lists_and_maps_are_explained() {
        let text = explain("issuers.le.dns.cloudflare").expect("there is one");
        assert!(text.contains("tokenFile <string>"), "{text}");
        let text = explain("limits.overrides").expect("there is one");
        assert!(text.contains("namespaces <object>"), "{text}");
        assert!(explain("limits.overrides.limits.routes").is_some());
    }

    #[test]
    fn the_reference_says_what_each_value_means() {
        let all = reference();
        let field = all
            .iter()
            .find(|field| field.path == "tenancy.acmeDirectories");
        let text = &field.expect("there is one").description;
        assert!(
            text.contains("gatewright.io/acme-directory. `Known`: Those of"),
            "{text}"
        );
        assert!(text.contains("of this document. `Any`: Any: the"), "{text}");
    }
}
