//! Finds the line of a field in the text of a document: the parser reads the text again as far as
//! the field, and an error there has its line.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Returns the line, from 0, of a field such as `spec.rules[1].port`; of the innermost field around
/// it that is there, where it is not. JSON is YAML.
pub(crate) fn line_of(text: &str, field: &str) -> usize {
    let mut path = field;
    while !path.is_empty() {
        let parser = serde_yaml_ng::Deserializer::from_str(text);
        if let Err(error) = (Seek { path }).deserialize(parser) {
            return error.location().map_or(0, |place| place.line() - 1);
        }
        path = &path[..path.rfind(['.', '[']).unwrap_or(0)];
    }
    0
}

/// A path below a value. Reading the value fails at the end of the path, and not where the value
/// does not have it.
#[derive(Clone, Copy)]
struct Seek<'a> {
    path: &'a str,
}

impl<'a> Seek<'a> {
    /// The path below the entry of a mapping, if it leads there. A key may contain dots.
    fn below_key(self, key: &str) -> Option<Self> {
        let path = match self.path.strip_prefix('[') {
            Some(path) => path.strip_prefix(key)?.strip_prefix(']')?,
            None => {
                let path = self.path.strip_prefix('.').unwrap_or(self.path);
                path.strip_prefix(key)?
            }
        };
        (path.is_empty() || path.starts_with(['.', '['])).then_some(Self { path })
    }

    /// The number of the item of a list to which the path leads, and the path below it.
    fn item(self) -> Option<(usize, Self)> {
        let (number, path) = self.path.strip_prefix('[')?.split_once(']')?;
        Some((number.parse().ok()?, Self { path }))
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // A value of another type fails at the innermost field that is there.
        match self.item() {
            _ if self.path.is_empty() => deserializer.deserialize_bool(Never),
            Some(_) => deserializer.deserialize_seq(self),
            None => deserializer.deserialize_map(self),
        }
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value with fields or items")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(below) = entries.next_key_seed(Key(self))? {
            match below {
                Some(below) => entries.next_value_seed(below)?,
                None => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some((number, below)) = self.item() else {
            return Ok(());
        };
        for _ in 0..number {
            if items.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        items.next_element_seed(below)?;
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// Accepts no value, so that reading one fails at its place.
struct Never;

impl Visitor<'_> for Never {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no value")
    }
}

/// A key of a mapping: the path below it, if the path leads there.
struct Key<'a>(Seek<'a>);

impl<'de, 'a> DeserializeSeed<'de> for Key<'a> {
    type Value = Option<Seek<'a>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Key<'a> {
    type Value = Option<Seek<'a>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        match self.0.below_key(key) {
            Some(Seek { path: "" }) => Err(E::custom("the field is here")),
            below => Ok(below),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: &str = "\
kind: HTTPRoute
metadata:
  name: shop
  annotations:
    example.org/port: x
spec:
  # rules: a comment
  rules:
  - matches:
    - path: {type: Exact, value: /a}
    backendRefs:
      - name: v1
        port: 80
  - matches: [{path: {value: /b},
               headers: []}]
    backendRefs:
    - port: x
      name: v2
";

    #[test]
    fn a_field_is_found_by_its_path() {
        let table = [
            ("kind", 0),
            ("metadata.annotations.example.org/port", 4),
            ("metadata.annotations[example.org/port]", 4),
            ("spec.rules[0].matches[0].path.type", 9),
            ("spec.rules[0].backendRefs[0].port", 12),
            ("spec.rules[1].backendRefs[0].port", 16),
            ("spec.rules[1].backendRefs[0].name", 17),
            ("spec.rules[1].matches[0].headers[0].name", 14),
            // The innermost field that is there.
            ("spec.rules[7]", 7),
            ("spec.gone", 5),
            ("gone", 0),
        ];
        for (field, line) in table {
            assert_eq!(line_of(ROUTE, field), line, "{field}");
        }
    }

    #[test]
    fn a_field_of_indented_json_is_found() {
        let text = "\
{
  \"kind\": \"Gateway\",
  \"spec\": {
    \"listeners\": [
      {
        \"port\": 1
      },
      {
        \"name\": \"a\",
        \"port\": 2
      }
    ]
  }
}
";
        assert_eq!(line_of(text, "spec.listeners[0].port"), 5);
        assert_eq!(line_of(text, "spec.listeners[1].port"), 9);
    }

    #[test]
    fn any_text_is_taken() {
        for text in ["", "-", "- ", ":", "{", "'", "\"a", "é: [ü", "- - a: b"] {
            for field in ["", "[", "[0]", "a", ".", "a[0].b", "ü", "[x].é"] {
                line_of(text, field);
            }
        }
    }
}
