//! The short form of documents: conditions, kinds, references and names as one text each, names of
//! types without their package, what is alone in a map or list beside its name.

use serde_json::{Map, Value, json};

/// The longest row of texts.
const ROW: usize = 100;

/// The short form of a document.
pub(crate) fn document(value: Value) -> Value {
    match value {
        Value::Object(fields) => match as_text(&fields) {
            Some(text) => json!(text),
            None => Value::Object(fields.into_iter().map(field).collect()),
        },
        Value::Array(items) => Value::Array(items.into_iter().map(document).collect()),
        other => other,
    }
}

/// A field. What is alone in a map or list stands beside its name, and short texts in a row.
fn field((name, value): (String, Value)) -> (String, Value) {
    if name == "@type" {
        let text = value.as_str().unwrap_or_default();
        let last = text.rsplit(['.', '/']).next().unwrap_or_default();
        return (name, json!(last));
    }
    alone(name, document(value))
}

fn alone(name: String, value: Value) -> (String, Value) {
    match value {
        Value::Object(inner) if inner.len() == 1 => {
            let (rest, value) = inner.into_iter().next().expect("it has one");
            (format!("{name}.{rest}"), value)
        }
        Value::Array(mut items) if items.len() == 1 => {
            alone(format!("{name}[]"), items.pop().expect("it has one"))
        }
        Value::Array(items) => match in_a_row(&items) {
            Some(row) => (format!("{name}[]"), json!(row)),
            None => (name, Value::Array(items)),
        },
        value => (name, value),
    }
}

/// Short texts in a row.
fn in_a_row(items: &[Value]) -> Option<String> {
    let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
    let row = texts?.join(", ");
    let is_clear = row.matches(", ").count() + 1 == items.len();
    (is_clear && !items.is_empty() && row.len() <= ROW).then_some(row)
}

/// The text of a map that is a condition, the name of an object, a kind, or a reference.
fn as_text(fields: &Map<String, Value>) -> Option<String> {
    let has_only = |known: &[&str]| fields.keys().all(|name| known.contains(&name.as_str()));
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    const CONDITION: [&str; 5] = ["type", "status", "reason", "message", "observedGeneration"];
    if let (Some(kind), Some(status), Some(reason), Some(message)) = (
        text("type"),
        text("status"),
        text("reason"),
        text("message"),
    ) && has_only(&CONDITION)
    {
        let generation = match fields.get("observedGeneration").and_then(Value::as_i64) {
            Some(1) => String::new(),
            Some(other) => format!(" at {other}"),
            None => " without a generation".to_owned(),
        };
        let told = if message.is_empty() { "" } else { ": " };
        return Some(format!(
            "{kind}={status} {reason}{generation}{told}{message}"
        ));
    }
    if has_only(&["group", "kind"]) {
        return Some(format!("{}{}", text("kind")?, of_group(text("group")?)));
    }
    if has_only(&["name", "namespace"]) && fields.contains_key("name") {
        let namespace = text("namespace").map(|of| format!("{of}/"));
        return Some(format!(
            "{}{}",
            namespace.unwrap_or_default(),
            text("name")?
        ));
    }
    const REFERENCE: [&str; 5] = ["group", "kind", "namespace", "name", "sectionName"];
    if has_only(&REFERENCE) && fields.contains_key("kind") && fields.contains_key("name") {
        let group = text("group").map(of_group).unwrap_or_default();
        let namespace = text("namespace")
            .map(|of| format!("{of}/"))
            .unwrap_or_default();
        let section = text("sectionName")
            .map(|of| format!("#{of}"))
            .unwrap_or_default();
        return Some(format!(
            "{}{group} {namespace}{}{section}",
            text("kind")?,
            text("name")?
        ));
    }
    None
}

fn of_group(group: &str) -> String {
    match group {
        "gateway.networking.k8s.io" => String::new(),
        "" => " of the core".to_owned(),
        _ => format!(" of {group}"),
    }
}
