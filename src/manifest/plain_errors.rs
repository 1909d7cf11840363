//! No message about an object or the configuration has words of Rust: every field of every kind,
//! with every wrong type of JSON.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use gatewright_core::inputs::{Object, plain};
use serde_json::{Value, json};

use super::document::documents;
use super::read_yaml;
use crate::configuration::Configuration;

/// Words that are no plain English, and mean a type of Rust or of serde.
const WORDS: &[&str] = &[
    "struct",
    "enum",
    "tuple",
    "newtype",
    "sequence",
    "map",
    "unit",
    "variant",
    "identifier",
    "u8",
    "u16",
    "u32",
    "u64",
    "usize",
    "i8",
    "i16",
    "i32",
    "i64",
    "isize",
    "f32",
    "f64",
    "bool",
    "str",
    "Option",
    "deserialize",
];

fn wrong_values() -> [Value; 10] {
    [
        json!(true),
        json!(5),
        json!(-1),
        json!(70_000_000_000_i64),
        json!(1.5),
        json!("x"),
        json!([]),
        json!([1]),
        json!({}),
        json!({"a": {"b": 1}}),
    ]
}

/// The first word of a message that is one of Rust. What the author wrote is quoted.
fn word_of_rust(message: &str) -> Option<&str> {
    let quoted = |index: usize| {
        let before = &message[..index];
        before.matches(['"', '`']).count() % 2 == 1
    };
    let mut at = 0;
    for word in message.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        let index = at;
        at += word.len() + 1;
        let follows_expected = message[..index].ends_with("expected ");
        let is_type = follows_expected && word.starts_with(|c: char| c.is_ascii_uppercase());
        if !quoted(index) && (WORDS.contains(&word) || is_type) {
            return Some(word);
        }
    }
    message
        .starts_with("invalid type")
        .then_some("invalid type")
}

/// All places in a value, each by its path, and without the numbers of items.
fn places(value: &Value, path: &str, general: &str, found: &mut Vec<(String, String)>) {
    found.push((path.to_owned(), general.to_owned()));
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                let (path, general) = (format!("{path}/{name}"), format!("{general}/{name}"));
                places(field, &path, &general, found);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                places(
                    item,
                    &format!("{path}/{number}"),
                    &format!("{general}/-"),
                    found,
                );
            }
        }
        _ => {}
    }
}

#[test]
fn errors_of_objects_are_in_plain_words() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/core/translate/testdata");
    let mut known = BTreeSet::new();
    let mut broken = BTreeSet::new();
    let mut tried = 0;
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("cases")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.to_string_lossy().ends_with(".in.yaml"))
        .collect();
    files.sort();
    for file in files {
        let text = fs::read_to_string(file).expect("a case");
        for (_, document) in documents(&text) {
            let Ok(object @ Value::Object(_)) = read_yaml(document) else {
                continue;
            };
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            let mut all = Vec::new();
            places(&object, "", "", &mut all);
            for (path, general) in all {
                if path.is_empty() || !known.insert(format!("{kind}{general}")) {
                    continue;
                }
                for wrong in wrong_values() {
                    let mut changed = object.clone();
                    *changed.pointer_mut(&path).expect("there") = wrong;
                    tried += 1;
                    let Err(unreadable) = Object::parse_written(&changed) else {
                        continue;
                    };
                    let message = unreadable.why.to_string();
                    if let Some(word) = word_of_rust(&message) {
                        broken.insert(format!("{kind}{general}: {word:?} in {message}"));
                    }
                }
            }
        }
    }
    assert!(tried > 2000, "only {tried} values were tried");
    let told: Vec<&str> = broken.iter().take(40).map(String::as_str).collect();
    assert!(
        told.is_empty(),
        "{} messages:\n{}",
        broken.len(),
        told.join("\n")
    );
}

#[test]
fn errors_of_the_configuration_are_in_plain_words() {
    let mut document = serde_json::to_value(Configuration::default()).expect("JSON");
    document["issuers"] = json!({"le": {"directory": "letsencrypt", "contacts": ["mailto:a@b"],
        "dns": {"exec": {"program": "a"}}, "fallback": ["internal-ca"], "httpPort": 80,
        "limits": {"orders": {"count": 1, "hours": 2}},
        "allow": [{"namespaces": ["a"], "hostnames": ["b"], "wildcards": true}]}});
    let mut all = Vec::new();
    places(&document, "", "", &mut all);
    let mut broken = Vec::new();
    for (path, _) in all {
        for wrong in wrong_values() {
            let mut changed = document.clone();
            *changed.pointer_mut(&path).expect("there") = wrong;
            let read = serde_path_to_error::deserialize::<_, Configuration>(changed);
            let Err(error) = read else { continue };
            let message = plain(&error.into_inner().to_string());
            if let Some(word) = word_of_rust(&message) {
                broken.push(format!("{path}: {word:?} in {message}"));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "{} messages:\n{}",
        broken.len(),
        broken
            .iter()
            .take(40)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    );
}
