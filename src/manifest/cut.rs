//! Reads what stands before the place where the text of a document cannot be read any more, as in a
//! file that is cut off.

use serde_json::{Map, Value};

use super::parts::{Part, parts};

/// Returns the lists and mappings before the first mistake, whose scalars are all texts; a key that
/// a mapping has again gets a name of its own.
pub(super) fn before_mistake(text: &str) -> Value {
    let mut open: Vec<Open> = Vec::new();
    for (part, _) in parts(text) {
        let closed = match part {
            Part::Scalar(text) => Value::String(text.into_owned()),
            Part::Alias => Value::Null,
            Part::List => {
                open.push(Open::List(Vec::new()));
                continue;
            }
            Part::Mapping => {
                open.push(Open::Mapping(Map::new(), None));
                continue;
            }
            Part::End => match open.pop() {
                Some(ended) => ended.value(),
                None => continue,
            },
        };
        match open.last_mut() {
            Some(around) => around.add(closed),
            // The document is whole.
            None => return closed,
        }
    }
    let mut inner = None;
    while let Some(mut around) = open.pop() {
        if let Some(inner) = inner {
            around.add(inner);
        }
        inner = Some(around.value());
    }
    inner.unwrap_or(Value::Null)
}

/// A list or mapping whose end was not read yet.
enum Open {
    List(Vec<Value>),
    /// The entries, and the key whose value comes next.
    Mapping(Map<String, Value>, Option<String>),
}

impl Open {
    fn add(&mut self, value: Value) {
        match self {
            Self::List(items) => items.push(value),
            Self::Mapping(entries, key) => match key.take() {
                None => *key = Some(value.as_str().unwrap_or_default().to_owned()),
                Some(mut key) => {
                    while entries.contains_key(&key) {
                        key.push('\'');
                    }
                    entries.insert(key, value);
                }
            },
        }
    }

    fn value(self) -> Value {
        match self {
            Self::List(items) => Value::Array(items),
            Self::Mapping(entries, _) => Value::Object(entries),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_stands_before_a_mistake_is_read() {
        for (text, expected) in [
            // The last item may be cut off itself.
            ("a: 1\nb: [x, {c: d", json!({"a": "1", "b": ["x"]})),
            ("a: b\nc: d: e\n", json!({"a": "b", "c": "d"})),
            ("a: x\na: y\n", json!({"a": "x", "a'": "y"})),
            ("a: &b {c: d}\ne: *b\n", json!({"a": {"c": "d"}, "e": null})),
            ("", Value::Null),
            ("- a: [x, y", json!([{"a": ["x"]}])),
        ] {
            assert_eq!(before_mistake(text), expected, "{text}");
        }
    }
}
