//! Deserializes one document into a type: strictly, as a person wrote it, or leniently, as an API
//! server admitted it.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::plain_words::plain;

/// Why a document cannot be parsed as an object.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// No `apiVersion` or `kind`.
    #[error("no {0}: every manifest needs apiVersion and kind")]
    NoType(&'static str),
    /// A kind that we do not read.
    #[error("kind {kind} of {api_version} is not read: expected one of {expected}")]
    UnknownKind {
        /// As written.
        kind: String,
        /// As written.
        api_version: String,
        /// The kinds that we read.
        expected: String,
    },
    /// A version of a known kind that we do not read.
    #[error("{kind}: apiVersion {found} is not read: use {expected}")]
    UnknownVersion {
        /// The kind.
        kind: &'static str,
        /// As written.
        found: String,
        /// The version to write.
        expected: String,
    },
    /// No name.
    #[error("no metadata.name")]
    NoName,
    /// A name that no object can have.
    #[error(
        "{field}: {found} is no name: lower-case letters, digits, '-' and, in names of objects, '.', at most 253 characters \
         (63 of a namespace; RFC 1123)"
    )]
    InvalidName {
        /// The path of the field.
        field: &'static str,
        /// As written, printable.
        found: String,
    },
    /// A field that the kind's schema does not have.
    #[error("unknown field {0}")]
    UnknownField(String),
    /// A violation of the schema.
    #[error("{0}")]
    Schema(String),
    /// A violation of the schema by one field.
    #[error("{path}: {text}")]
    Field {
        /// The path of the field.
        path: String,
        /// The error.
        text: String,
    },
}

impl ParseError {
    /// The same without what the document says at the wrong place: in a Secret that may be a
    /// private key.
    pub(super) fn without_values(self) -> Self {
        match self {
            Self::Schema(text) => Self::Schema(without_quoted(text)),
            Self::Field { path, text } => Self::Field {
                path: names_alone(&path),
                text: without_quoted(text),
            },
            Self::UnknownField(path) => Self::UnknownField(names_alone(&path)),
            Self::UnknownVersion {
                kind,
                found,
                expected,
            } => {
                // YAML adds indented lines below a string to that string.
                let found = if found.len() <= 16 {
                    found
                } else {
                    "(not shown)".to_owned()
                };
                Self::UnknownVersion {
                    kind,
                    found,
                    expected,
                }
            }
            other => other,
        }
    }
}

/// Removes the values that the message of a parser has.
fn without_quoted(text: String) -> String {
    if let Some((expected, _)) = text.split_once(", found ") {
        return format!("{expected}, found (not shown)");
    }
    match (text.find(['"', '`']), text.rfind(['"', '`'])) {
        (Some(begin), Some(end)) if begin < end => {
            format!("{}(not shown){}", &text[..begin], &text[end + 1..])
        }
        _ => text,
    }
}

/// Removes what may be no name from a path.
fn names_alone(path: &str) -> String {
    let shown = path
        .split('.')
        .map(|name| if is_name(name) { name } else { "(not shown)" });
    shown.collect::<Vec<_>>().join(".")
}

fn is_name(name: &str) -> bool {
    name.len() <= 32
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"[]".contains(&byte))
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str().filter(|text| !text.is_empty())
}

/// The policy for unknown fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fields {
    /// An unknown field is an error.
    Known,
    /// Unknown fields are ignored.
    Any,
}

/// Deserializes one of our types. Strict and lenient reading share one deserializer, since each
/// deserializer type would compile the code of all objects once more.
pub(super) fn read<T: DeserializeOwned>(value: &Value, fields: Fields) -> Result<T, ParseError> {
    let mut unknown = None;
    let object = serde_ignored::deserialize(value, &mut noting(&mut unknown, fields))
        .map_err(|error| located::<T>(value, &error))?;
    match unknown {
        Some(path) => Err(ParseError::UnknownField(path)),
        None => Ok(object),
    }
}

/// Adds to an error the path of the field that is wrong. Only a wrong document is read again for
/// it.
fn located<T: DeserializeOwned>(value: &Value, error: &serde_json::Error) -> ParseError {
    let text = error.to_string();
    // What a decoder of base64 says, whose errors begin with a capital letter: byte and place.
    let text = if text.starts_with("Invalid ") {
        "expected base64".to_owned()
    } else {
        plain(&text)
    };
    match serde_path_to_error::deserialize::<_, T>(value)
        .err()
        .map(|error| error.path().to_string())
    {
        Some(path) if path != "." => ParseError::Field { path, text },
        _ => ParseError::Schema(text),
    }
}

/// Records the first unknown field if unknown fields are errors. It is separate from [`read`], so
/// that its type is the same for every `T`.
fn noting(unknown: &mut Option<String>, fields: Fields) -> impl FnMut(serde_ignored::Path<'_>) {
    move |path| {
        if fields == Fields::Any || unknown.is_some() {
            return;
        }
        // The top-level fields of every object that our types leave out (apiVersion, kind, status)
        // are no mistake.
        let path = written(&path);
        let top = path.split('.').next().unwrap_or_default();
        if !matches!(top, "apiVersion" | "kind" | "status") {
            *unknown = Some(path);
        }
    }
}

/// Returns a path as people write it: `spec.rules[1].name`.
fn written(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", written(parent)),
        Path::Map { parent, key } => match written(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => written(parent),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::inputs::Object;

    fn told(kind: &str, api_version: &str, mut value: Value) -> String {
        value["apiVersion"] = api_version.into();
        value["kind"] = kind.into();
        value["metadata"] = json!({"name": "a", "namespace": "b"});
        Object::parse(value).expect_err("it is wrong").to_string()
    }

    #[test]
    fn an_error_names_the_field() {
        fn route(spec: Value) -> String {
            told(
                "HTTPRoute",
                "gateway.networking.k8s.io/v1",
                json!({"spec": spec}),
            )
        }
        fn rules(rule: Value) -> Value {
            json!({"rules": [{}, rule]})
        }
        let port = rules(json!({"backendRefs": [{"name": "v1", "port": "80"}]}));
        assert_eq!(
            route(port),
            "spec.rules[1].backendRefs[0].port: expected a whole number, found \"80\""
        );
        let path = route(rules(
            json!({"matches": [{"path": {"type": "exact", "value": "/"}}]}),
        ));
        assert!(
            path.starts_with("spec.rules[1].matches[0].path.type: unknown value `exact`"),
            "{path}"
        );
        let header = route(rules(
            json!({"matches": [{"headers": [{"name": "x", "value": 1}]}]}),
        ));
        assert!(
            header.starts_with("spec.rules[1].matches[0].headers[0].value: expected text, found 1"),
            "{header}"
        );
        let unknown = route(rules(json!({"backendRefs": [{"name": "v1", "prot": 80}]})));
        assert_eq!(unknown, "unknown field spec.rules[1].backendRefs[0].prot");
        assert_eq!(
            told("HTTPRoute", "gateway.networking.k8s.io/v1", json!({})),
            "missing field `spec`"
        );
    }

    #[test]
    fn an_error_of_a_secret_shows_no_value() {
        fn secret(data: Value) -> String {
            told("Secret", "v1", json!({"data": data}))
        }
        assert_eq!(
            secret(json!({"tls.key": "-----BEGIN"})),
            "data.tls.key: expected base64"
        );
        assert_eq!(
            secret(json!({"pin": 12345})),
            "data.pin: expected a base64-encoded string, found (not shown)"
        );
        let key = "-----BEGIN PRIVATE KEY----- MIGHAgEA";
        for found in [
            secret(json!({key: 1})),
            secret(json!(key)),
            secret(json!([key])),
            secret(json!({"a": [key]})),
        ] {
            assert!(
                !found.contains("MIGH") && !found.contains("BEGIN"),
                "{found}"
            );
        }
        let text = told("Secret", "v1", json!({"stringData": {"token": 4711}}));
        assert!(
            text.starts_with("stringData.token: ") && !text.contains("4711"),
            "{text}"
        );
    }
}
