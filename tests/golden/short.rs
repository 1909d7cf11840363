//! The short form of documents: conditions, kinds, references and names as one text each, names of
//! types without their package, what is alone in a map or list beside its name.

use std::collections::BTreeMap;

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

/// The first text of a document that its short form lacks, if there is one.
pub(crate) fn lost<'a>(pairs: impl Iterator<Item = (&'a Value, &'a Value)>) -> Option<String> {
    for (long, short) in pairs {
        let mut texts = BTreeMap::new();
        note(long, "", &mut texts);
        let short = short.to_string();
        let missing = texts
            .iter()
            .find(|(text, times)| short.matches(*text).count() < **times);
        if let Some((text, times)) = missing {
            return Some(format!(
                "{text} is there {times} times, and less often in {short}"
            ));
        }
    }
    None
}

/// Notes how often each text is in a value, but those that the short form leaves out.
fn note(value: &Value, name: &str, texts: &mut BTreeMap<String, usize>) {
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, value)| note(value, name, texts)),
        Value::Array(items) => items.iter().for_each(|item| note(item, name, texts)),
        Value::Number(number) if name == "observedGeneration" && number.as_i64() == Some(1) => {}
        Value::String(text) if name == "group" && !of_group(text).contains(text) => {}
        Value::String(text) => {
            let last = text.rsplit(['.', '/']).next().unwrap_or_default();
            let text = if name == "@type" { last } else { text };
            let quoted = json!(text).to_string();
            let text = quoted.trim_matches('"');
            if !text.is_empty() {
                *texts.entry(text.to_owned()).or_default() += 1;
            }
        }
        other => *texts.entry(other.to_string()).or_default() += 1,
    }
}
