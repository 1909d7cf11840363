//! `--set PATH=VALUE`: one field of the configuration on the command line.

use serde_json::{Map, Value};

/// A field, and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Override {
    /// The path of the field, as `limits.namespace.routes`.
    pub(super) path: String,
    value: Value,
}

impl Override {
    /// Reads `PATH=VALUE`; the value is YAML, so that lists and objects are `[a, b]` and `{c: d}`.
    ///
    /// # Errors
    /// When it has another form.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let form = "expected PATH=VALUE, as limits.namespace.routes=500";
        let (path, value) = text.split_once('=').ok_or(form)?;
        if path.split('.').any(str::is_empty) {
            return Err(form.to_owned());
        }
        let value = crate::manifest::read_yaml(value).map_err(|error| error.to_string())?;
        Ok(Self {
            path: path.to_owned(),
            value,
        })
    }

    /// Puts the value into a document.
    ///
    /// # Errors
    /// When something on its path is no object.
    pub(super) fn put(&self, document: &mut Value) -> Result<(), String> {
        let mut at = document;
        for name in self.path.split('.') {
            if at.is_null() {
                *at = Value::Object(Map::new());
            }
            at = at
                .as_object_mut()
                .ok_or_else(|| format!("{name} is below a value that has no fields"))?
                .entry(name)
                .or_insert(Value::Null);
        }
        *at = self.value.clone();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_yaml_and_are_put_where_their_path_leads() {
        let mut document = json!({"limits": {"udpPorts": 2}});
        for text in [
            "limits.namespace.routes=5",
            "envoys.bind=[192.0.2.1]",
            "a.b=",
        ] {
            let one = Override::parse(text).expect("a field");
            one.put(&mut document).expect("objects");
        }
        let expected = json!({"limits": {"udpPorts": 2, "namespace": {"routes": 5}},
            "envoys": {"bind": ["192.0.2.1"]}, "a": {"b": null}});
        assert_eq!(document, expected);
    }

    #[test]
    fn other_forms_are_refused() {
        for wrong in ["limits", "=1", "a..b=1", "a=[1"] {
            assert!(Override::parse(wrong).is_err(), "{wrong}");
        }
        let below = Override::parse("limits.udpPorts.x=1").expect("a field");
        let mut document = json!({"limits": {"udpPorts": 2}});
        assert!(below.put(&mut document).is_err(), "a number has no fields");
    }
}
