//! Deserializes one document into a type: strictly, as a person wrote it, or leniently, as an API server admitted it.

use serde::de::DeserializeOwned;
use serde_json::Value;

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
}

impl ParseError {
    /// The same without what the document says at the wrong place: in a Secret that may be a private key.
    pub(super) fn without_values(self) -> Self {
        match self {
            Self::Schema(text) => Self::Schema(match (text.find('"'), text.rfind('"')) {
                (Some(begin), Some(end)) if begin < end => format!("{}(not shown){}", &text[..begin], &text[end + 1..]),
                _ => text,
            }),
            Self::UnknownField(path) => {
                let is_name = |name: &str| name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
                let shown = path.split('.').map(|name| if is_name(name) { name } else { "(not shown)" });
                Self::UnknownField(shown.collect::<Vec<_>>().join("."))
            }
            Self::UnknownVersion { kind, found, expected } => {
                // YAML adds indented lines below a string to that string.
                let found = if found.len() <= 16 { found } else { "(not shown)".to_owned() };
                Self::UnknownVersion { kind, found, expected }
            }
            other => other,
        }
    }
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

/// Deserializes one of our types. Strict and lenient reading share one deserializer, since each deserializer type would
/// compile the code of all objects once more.
pub(super) fn read<T: DeserializeOwned>(value: &Value, fields: Fields) -> Result<T, ParseError> {
    let mut unknown = None;
    let object = serde_ignored::deserialize(value, &mut noting(&mut unknown, fields))
        .map_err(|e| ParseError::Schema(e.to_string()))?;
    match unknown {
        Some(path) => Err(ParseError::UnknownField(path)),
        None => Ok(object),
    }
}

/// Records the first unknown field if unknown fields are errors. It is separate from [`read`], so that its type is the
/// same for every `T`.
fn noting(unknown: &mut Option<String>, fields: Fields) -> impl FnMut(serde_ignored::Path<'_>) {
    move |path| {
        if fields == Fields::Any || unknown.is_some() {
            return;
        }
        // `?` marks an Option that was stepped into; people do not write it. The top-level fields of every object that
        // our types leave out (apiVersion, kind, status) are no mistake.
        let path = path.to_string().replace(".?", "").replace("?.", "");
        let top = path.split('.').next().unwrap_or_default();
        if !matches!(top, "apiVersion" | "kind" | "status") {
            *unknown = Some(path);
        }
    }
}
