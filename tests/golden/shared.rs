//! Parts that several cases have alike stand once, in a file beside the cases: a change of such a
//! part changes that file, and no case.
//!
//! A part keeps its name while its content is the same. When that changes, the part that is most
//! like it has the name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use similar::TextDiff;

/// The file.
const FILE: &str = "shared.out.yaml";
/// The fewest lines of a part, and the fewest cases that have it.
const LINES: usize = 5;
const CASES: usize = 4;

/// The parts by their names.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Shared {
    parts: BTreeMap<String, Value>,
}

/// A part of documents, and the cases that have it.
struct Part {
    /// What its name begins with.
    stem: String,
    value: Value,
    cases: BTreeSet<usize>,
}

impl Shared {
    /// Reads those of a folder; none if there is no file.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let path = folder.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let parts = serde_yaml_ng::from_str(&text).map_err(|error| error.to_string())?;
        Ok(Self { parts })
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<(), String> {
        let text = serde_yaml_ng::to_string(&self.parts).map_err(|error| error.to_string())?;
        fs::write(folder.join(FILE), text).map_err(|error| error.to_string())
    }

    /// Those that these cases have alike, with the names that they had before.
    pub(crate) fn of(cases: &[Vec<Value>], before: &Self) -> Self {
        let mut found = BTreeMap::new();
        for (case, documents) in cases.iter().enumerate() {
            documents
                .iter()
                .for_each(|document| note("document", document, case, &mut found));
        }
        found.retain(|_, part| part.cases.len() >= CASES);
        // What is left of a part where no larger one has it.
        let mut used: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for (case, documents) in cases.iter().enumerate() {
            documents
                .iter()
                .for_each(|document| use_largest(document, case, &found, &mut used));
        }
        found.retain(|text, _| used.get(text).is_some_and(|cases| cases.len() >= CASES));
        before.name(found)
    }

    /// Gives parts their names.
    fn name(&self, parts: BTreeMap<String, Part>) -> Self {
        let mut names: BTreeMap<String, &str> = BTreeMap::new();
        for (name, value) in &self.parts {
            names.insert(value.to_string(), name);
        }
        let (known, new): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .partition(|(text, _)| names.contains_key(text));
        let mut made = BTreeMap::new();
        for (text, part) in known {
            let name = names.remove(&text).expect("it is known");
            made.insert(name.to_owned(), part.value);
        }
        let mut left: BTreeSet<&str> = names.into_values().collect();
        for (_, part) in new {
            let alike = left
                .iter()
                .filter(|name| stem(name) == part.stem)
                .max_by(|a, b| {
                    let [a, b] = [a, b].map(|name| likeness(&self.parts[**name], &part.value));
                    a.total_cmp(&b)
                });
            let name = alike.map(|name| (*name).to_owned()).unwrap_or_else(|| {
                let mut free = (1..).map(|number| format!("{} ({number})", part.stem));
                free.find(|name| !made.contains_key(name) && !self.parts.contains_key(name))
                    .expect("numbers do not end")
            });
            left.remove(name.as_str());
            made.insert(name, part.value);
        }
        Self { parts: made }
    }

    /// Documents with the names of parts in their place.
    pub(crate) fn fold(&self, documents: Vec<Value>) -> Vec<Value> {
        let names = self
            .parts
            .iter()
            .map(|(name, value)| (value.to_string(), name.as_str()))
            .collect();
        documents
            .into_iter()
            .map(|document| folded(document, &names))
            .collect()
    }
}

fn stem(name: &str) -> &str {
    name.rsplit_once(" (").map_or(name, |(stem, _)| stem)
}

fn likeness(one: &Value, other: &Value) -> f32 {
    TextDiff::from_lines(&yaml(one), &yaml(other)).ratio()
}

fn yaml(value: &Value) -> String {
    serde_yaml_ng::to_string(value).unwrap_or_default()
}

/// The values in a map or list, each with the name of its field.
fn inner<'a>(name: &'a str, value: &'a Value) -> Vec<(&'a str, &'a Value)> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (&**name, value))
            .collect(),
        Value::Array(items) => items.iter().map(|item| (name, item)).collect(),
        _ => Vec::new(),
    }
}

/// Notes that a case has a value, and what is in it.
fn note(name: &str, value: &Value, case: usize, found: &mut BTreeMap<String, Part>) {
    let inner = inner(name, value);
    if inner.is_empty() || yaml(value).lines().count() < LINES {
        return;
    }
    let part = found.entry(value.to_string()).or_insert_with(|| Part {
        stem: name_of(name, value),
        value: value.clone(),
        cases: BTreeSet::new(),
    });
    part.cases.insert(case);
    for (name, value) in inner {
        note(name, value, case, found);
    }
}

/// What the name of a part begins with: the object that it is of, its own name or type, or the last
/// part of its field.
fn name_of(field: &str, value: &Value) -> String {
    let text = |name: &str| value[name].as_str();
    let last = field.rsplit('.').next().unwrap_or_default();
    match (text("kind"), text("metadata")) {
        (Some(kind), Some(name)) => format!("{kind} {name}"),
        _ => text("@type").or(text("name")).unwrap_or(last).to_owned(),
    }
}

fn use_largest(
    value: &Value,
    case: usize,
    parts: &BTreeMap<String, Part>,
    used: &mut BTreeMap<String, BTreeSet<usize>>,
) {
    let text = value.to_string();
    if parts.contains_key(&text) {
        used.entry(text).or_default().insert(case);
        return;
    }
    for (_, value) in inner("", value) {
        use_largest(value, case, parts, used);
    }
}

fn folded(value: Value, names: &BTreeMap<String, &str>) -> Value {
    if let Some(name) = names.get(&value.to_string()) {
        return json!(format!("= {name}"));
    }
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, folded(value, names)))
            .collect(),
        Value::Array(items) => items.into_iter().map(|item| folded(item, names)).collect(),
        other => other,
    }
}
