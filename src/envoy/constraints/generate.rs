//! Generates the table of constraints from the descriptors of `envoy-types`.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value,
};

use crate::descriptors;

/// Collects the values of all rules that are set, by their path, e.g.
/// `repeated.items.string.min_len`.
fn set(message: &DynamicMessage, before: &str, into: &mut Vec<(String, Value)>) {
    for (field, value) in message.fields() {
        let path = if before.is_empty() {
            field.name().to_owned()
        } else {
            format!("{before}.{}", field.name())
        };
        match value {
            Value::Message(inner) if !field.is_list() && !is_duration(inner) => {
                set(inner, &path, into)
            }
            other => into.push((path, other.clone())),
        }
    }
}

fn is_duration(message: &DynamicMessage) -> bool {
    use prost_reflect::ReflectMessage;
    message.descriptor().full_name() == "google.protobuf.Duration"
}

fn nanoseconds(message: &DynamicMessage) -> String {
    (part("seconds", message) * 1_000_000_000 + part("nanos", message)).to_string()
}

fn part(name: &str, message: &DynamicMessage) -> i64 {
    match message.get_field_by_name(name).as_deref() {
        Some(Value::I64(n)) => *n,
        Some(Value::I32(n)) => i64::from(*n),
        _ => 0,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Bool(b) => u8::from(*b).to_string(),
        Value::I32(n) => n.to_string(),
        Value::I64(n) => n.to_string(),
        Value::U32(n) => n.to_string(),
        Value::U64(n) => n.to_string(),
        Value::F32(n) => n.to_string(),
        Value::F64(n) => n.to_string(),
        Value::String(s) => s.clone(),
        Value::EnumNumber(n) => n.to_string(),
        Value::List(all) => all.iter().map(text).collect::<Vec<_>>().join("|"),
        Value::Message(message) if is_duration(message) => nanoseconds(message),
        other => panic!("no rule has {other:?}"),
    }
}

/// The rules of a field in the table's notation.
fn rules(pool: &DescriptorPool, field: &FieldDescriptor) -> Vec<String> {
    let extension = pool
        .get_extension_by_name("validate.rules")
        .expect("the package has the rules");
    let options = field.options();
    if !options.has_extension(&extension) {
        return Vec::new();
    }
    let extended = options.get_extension(&extension);
    let Value::Message(found) = &*extended else {
        panic!("rules are a message")
    };
    let mut all = Vec::new();
    set(found, "", &mut all);
    let loose = all
        .iter()
        .any(|(path, value)| path.ends_with("string.strict") && *value == Value::Bool(false));
    let mut made = Vec::new();
    for (path, value) in all {
        let of_items = path.strip_prefix("repeated.items.").unwrap_or(&path);
        let (of, rule) = of_items.rsplit_once('.').unwrap_or(("", of_items));
        made.push(match (of, rule) {
            ("string", "strict") | ("map.keys.string", _) => continue,
            // A set field of a oneof is always present.
            (_, "required") if field.containing_oneof().is_some() => continue,
            (_, "required" | "ignore_empty" | "unique" | "skip") => {
                if value == Value::Bool(false) {
                    continue;
                }
                rule.to_owned()
            }
            ("string", "well_known_regex") => {
                let kind = if value == Value::EnumNumber(1) {
                    "name"
                } else {
                    "value"
                };
                format!("characters={}{kind}", if loose { "loose-" } else { "" })
            }
            ("enum", "defined_only") => {
                let Kind::Enum(values) = field.kind() else {
                    panic!("{} is an enum", field.full_name())
                };
                let numbers: BTreeSet<i32> = values.values().map(|value| value.number()).collect();
                format!(
                    "defined={}",
                    numbers
                        .iter()
                        .map(i32::to_string)
                        .collect::<Vec<_>>()
                        .join("|")
                )
            }
            ("bytes", "min_len") => format!("min_bytes={}", text(&value)),
            ("bytes", "max_len") => format!("max_bytes={}", text(&value)),
            ("map", "min_pairs") => format!("min_items={}", text(&value)),
            _ => format!("{rule}={}", text(&value)),
        });
    }
    made
}

fn kind(field: &FieldDescriptor) -> Option<String> {
    Some(match field.kind() {
        Kind::String => "text".to_owned(),
        Kind::Bytes => "bytes".to_owned(),
        Kind::Double => "double".to_owned(),
        Kind::Float => "float".to_owned(),
        Kind::Message(message) => match message.full_name() {
            "google.protobuf.Any" => "any".to_owned(),
            "google.protobuf.Duration" => "duration".to_owned(),
            "google.protobuf.StringValue" => "wrapped-text".to_owned(),
            "google.protobuf.UInt32Value"
            | "google.protobuf.UInt64Value"
            | "google.protobuf.BoolValue" => "wrapped-integer".to_owned(),
            "google.protobuf.DoubleValue" => "wrapped-double".to_owned(),
            name if name.starts_with("google.protobuf.") => return None,
            name => name.to_owned(),
        },
        _ => "integer".to_owned(),
    })
}

fn lines(
    pool: &DescriptorPool,
    message: &MessageDescriptor,
    known: &BTreeSet<String>,
) -> Vec<String> {
    let mut fields: Vec<FieldDescriptor> = message.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    let mut made = Vec::new();
    for field in fields {
        let rules = rules(pool, &field);
        let Some(kind) = kind(&field) else { continue };
        // Envoy does not look into it.
        if rules.iter().any(|rule| rule == "skip") {
            continue;
        }
        let is_message = kind.contains('.');
        let is_known = known.contains(&kind);
        if (rules.is_empty() && kind != "any" && !is_known)
            || (is_message && !is_known && rules.is_empty())
        {
            continue;
        }
        // A required message without constraints of its own.
        let kind = if is_message && !is_known {
            "bytes".to_owned()
        } else {
            kind
        };
        let presence = match field.cardinality() {
            Cardinality::Repeated => "repeated",
            _ if field.supports_presence() => "explicit",
            _ => "implicit",
        };
        let mut parts = vec![
            field.number().to_string(),
            field.name().to_owned(),
            presence.to_owned(),
            kind,
        ];
        parts.extend(rules);
        made.push(parts.join("\t"));
    }
    let required = pool
        .get_extension_by_name("validate.required")
        .expect("the package has the rules");
    for one in message.oneofs() {
        let options = one.options();
        if options.has_extension(&required)
            && *options.get_extension(&required) == Value::Bool(true)
        {
            let numbers: BTreeSet<u32> = one.fields().map(|field| field.number()).collect();
            made.push(format!(
                "oneof {}",
                numbers
                    .iter()
                    .map(u32::to_string)
                    .collect::<Vec<_>>()
                    .join(" ")
            ));
        }
    }
    made
}

fn table() -> String {
    let pool =
        DescriptorPool::decode(descriptors::package().as_slice()).expect("the package's set");
    let reached: Vec<MessageDescriptor> = descriptors::pool()
        .all_messages()
        .filter(|message| !message.full_name().starts_with("google.protobuf."))
        .filter_map(|message| pool.get_message_by_name(message.full_name()))
        .collect();
    // Messages with constraints, and those whose fields lead to them.
    let mut known: BTreeSet<String> = BTreeSet::new();
    loop {
        let mut more = known.clone();
        more.extend(
            reached
                .iter()
                .filter(|message| !lines(&pool, message, &known).is_empty())
                .map(|message| message.full_name().to_owned()),
        );
        if more == known {
            break;
        }
        known = more;
    }
    let by_name: BTreeMap<&str, &MessageDescriptor> =
        reached.iter().map(|m| (m.full_name(), m)).collect();
    let mut made =
        String::from("# Made by `UPDATE=1 cargo test -p gatewright-envoy --lib constraints`.\n");
    for (name, message) in by_name {
        if known.contains(name) {
            made.push_str(&format!("message {name}\n"));
            lines(&pool, message, &known).iter().for_each(|line| {
                made.push_str(line);
                made.push('\n');
            });
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::table;

    #[test]
    fn the_checked_in_constraints_are_those_of_the_package() {
        let made = table();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("constraints/constraints.txt");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &made).expect("written");
        }
        let stored = std::fs::read_to_string(path).expect("the file");
        assert!(
            made == stored,
            "rewrite it: UPDATE=1 cargo test -p gatewright-envoy --lib constraints"
        );
        crate::constraints::Table::parse(&made).expect("a table");
    }
}
