//! Reads YAML and JSON whose mappings have each key once (YAML 1.2, 3.2.1.1; `kubectl` refuses
//! others as well): of two equal keys one would be lost without a word. Merge keys (`<<`) of YAML
//! are resolved.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The key of YAML whose value is merged into its mapping.
const MERGE: &str = "<<";

/// Reads a YAML document.
///
/// # Errors
/// When it is no YAML, or a mapping has two equal keys; then with the place of the second one.
pub(crate) fn read_yaml(text: &str) -> Result<Value, serde_yaml_ng::Error> {
    Unique { merges: true }.deserialize(serde_yaml_ng::Deserializer::from_str(text))
}

/// Reads a JSON document.
///
/// # Errors
/// As of [`read_yaml`].
pub(super) fn read_json(text: &str) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Unique { merges: false }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// A value whose mappings have each key once.
#[derive(Clone, Copy)]
struct Unique {
    /// True if merge keys are resolved.
    merges: bool,
}

impl<'de> DeserializeSeed<'de> for Unique {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    /// An empty document of YAML.
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(key) = entries.next_key_seed(NewKey(&all))? {
            let value = entries.next_value_seed(self)?;
            all.insert(key, value);
        }
        let merged = if self.merges { all.remove(MERGE) } else { None };
        let sources = match merged {
            Some(Value::Array(sources)) => sources,
            source => source.into_iter().collect(),
        };
        for source in sources {
            let Value::Object(source) = source else {
                return Err(A::Error::custom(
                    "the value of << is neither a mapping nor a list of mappings",
                ));
            };
            // The mapping's own keys go first, then those of the first source.
            for (key, value) in source {
                all.entry(key).or_insert(value);
            }
        }
        Ok(Value::Object(all))
    }
}

/// A key that a mapping does not have yet. The error is made where the key is read, whose place it
/// gets.
struct NewKey<'a>(&'a Map<String, Value>);

impl<'de> DeserializeSeed<'de> for NewKey<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NewKey<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<String, E> {
        if self.0.contains_key(key) {
            return Err(E::custom(format_args!("duplicate key {key:?}")));
        }
        Ok(key.to_owned())
    }
}
