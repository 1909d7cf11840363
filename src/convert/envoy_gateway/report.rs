//! Notes on the fields of an object.

use serde_json::Value;

use super::fields::row;
use crate::convert::Verdict;
use crate::convert::report::Report;

impl Report {
    /// Says the row of each field of which nothing is said yet. Returns the settings that close
    /// the targets.
    pub(super) fn fields(&mut self, document: usize, kind: &str, spec: &Value) -> Vec<String> {
        let mut closing = Vec::new();
        for (path, value) in leaves(spec) {
            let Some(row) = row(kind, &path) else {
                let text = "no field of the version that is known here, so nobody can tell what it restricts";
                self.say(document, &path, Verdict::NotCarriedOver, text);
                closing.push(path);
                continue;
            };
            let is_lost = row.of(&value).0 == Verdict::NotCarriedOver;
            if row.closes && is_lost && !self.has(document, row.name) {
                closing.push(row.name.to_owned());
            }
            self.row(document, row, &value);
        }
        closing
    }
}

/// The settings of a field with all below it that have an effect here.
pub(super) fn settings(kind: &str, field: &str, value: &Value) -> Vec<&'static str> {
    let mut leaves = Vec::new();
    collect(value, field, &mut leaves);
    let mut settings: Vec<&'static str> = leaves
        .iter()
        .filter_map(|(path, _)| row(kind, path))
        .filter(|row| row.verdict != Verdict::NotCarriedOver)
        .map(|row| row.name)
        .collect();
    settings.dedup();
    settings
}

/// The fields that are set: the path of each below `spec`, with `[]` for an item, and its value.
fn leaves(spec: &Value) -> Vec<(String, String)> {
    let mut leaves = Vec::new();
    collect(spec, "", &mut leaves);
    leaves
}

fn collect(value: &Value, path: &str, leaves: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let separator = if path.is_empty() { "" } else { "." };
                collect(value, &format!("{path}{separator}{name}"), leaves);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for value in items {
                collect(value, &format!("{path}[]"), leaves);
            }
        }
        Value::String(text) => leaves.push((path.to_owned(), text.clone())),
        Value::Null if path.is_empty() => {}
        Value::Object(_) | Value::Array(_) | Value::Null => {
            leaves.push((path.to_owned(), String::new()));
        }
        Value::Bool(_) | Value::Number(_) => leaves.push((path.to_owned(), value.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_have_the_paths_of_the_definitions() {
        let spec = json!({"a": {"b": true, "c": []}, "d": [{"e": "x"}, {"e": 1}], "f": {}});
        let found = leaves(&spec);
        let expected = [
            ("a.b", "true"),
            ("a.c", ""),
            ("d[].e", "x"),
            ("d[].e", "1"),
            ("f", ""),
        ];
        let expected = expected.map(|(path, value)| (path.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
    }
}
