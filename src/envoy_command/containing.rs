//! The resources of a configuration dump that contain a text. Envoy itself selects by name only,
//! and not the scopes that it was sent.

use serde_json::{Map, Value};

/// Lists of resources within an entry of a list.
const NESTED: &str = "scoped_route_configs";

/// A dump with only those resources.
pub(super) fn containing(dump: Value, text: &str) -> Value {
    if text.is_empty() {
        return dump;
    }
    let Value::Object(mut fields) = dump else {
        return dump;
    };
    if let Some(Value::Array(sections)) = fields.remove("configs") {
        let sections = sections.into_iter().filter_map(|of| section(of, text));
        fields.insert("configs".to_owned(), sections.collect());
    }
    Value::Object(fields)
}

/// A section, with its lists of resources; `None` if it has none of them.
fn section(section: Value, text: &str) -> Option<Value> {
    let Value::Object(fields) = section else {
        return None;
    };
    let fields: Map<String, Value> = fields
        .into_iter()
        .filter(|(_, value)| !value.is_object())
        .map(|(name, value)| (name, listed(value, text)))
        .collect();
    let has_some = fields
        .values()
        .any(|value| value.as_array().is_some_and(|all| !all.is_empty()));
    has_some.then_some(Value::Object(fields))
}

/// A list with the entries that contain the text; any other value as it is.
fn listed(value: Value, text: &str) -> Value {
    let Value::Array(entries) = value else {
        return value;
    };
    entries
        .into_iter()
        .filter(|entry| entry.to_string().contains(text))
        .map(|mut entry| {
            if let Some(nested) = entry.get_mut(NESTED) {
                *nested = listed(nested.take(), text);
            }
            entry
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_resources_that_contain_the_text_are_kept() {
        let dump = json!({"configs": [
            {"@type": "Bootstrap", "bootstrap": {"node": {"id": "a.org"}}},
            {"@type": "Clusters", "version_info": "3", "dynamic": [{"name": "web"}]},
            {"@type": "Scopes", "inline": [{"name": "scopes", NESTED: [{"name": "a.org"}, {"name": "b.org"}]}]},
        ]});
        let expected = json!({"configs": [
            {"@type": "Scopes", "inline": [{"name": "scopes", NESTED: [{"name": "a.org"}]}]},
        ]});
        assert_eq!(containing(dump.clone(), "a.org"), expected);
        assert_eq!(containing(dump.clone(), ""), dump, "all of it");
    }
}
