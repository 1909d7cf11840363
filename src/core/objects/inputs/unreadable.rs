//! An object of a file that cannot be read as a whole: what of it is in effect all the same. Pure.
//!
//! An API server refuses such an object, and who applied it is told. In a directory it is simply
//! there, beside the routes that it was written for.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};

use super::document::{Fields, read, text};
use super::names::is_label;
use super::{Kind, Meta, OWN_GROUP, Object, ParseError};

/// The kind of AccessPolicies, in lower case.
const ACCESS: &str = "accesspolicy";

/// An object of a file that cannot be read as a whole.
#[derive(Debug)]
pub struct Unreadable {
    /// Why.
    pub why: ParseError,
    /// What can be read of it.
    pub salvaged: Option<Object>,
    /// True if it may be an AccessPolicy, and nobody knows for what.
    pub hides_access: bool,
}

impl Object {
    /// Reads one object of a file, where every mistake is an error, as for [`Self::parse`]. What it
    /// guards is to be guarded all the same: the error comes with what can be read of the object,
    /// which refuses requests where a part is missing.
    pub fn parse_written(value: &Value) -> Result<Self, Box<Unreadable>> {
        Self::parse_with(value, Fields::Known).map_err(|why| Box::new(Unreadable::new(value, why)))
    }
}

impl Unreadable {
    fn new(value: &Value, why: ParseError) -> Self {
        let known = with_known_kind(value);
        let salvaged = known.as_ref().and_then(|value| {
            let told = ParseError::Schema(why.to_string());
            Object::salvage(value, told, Fields::Known).ok()
        });
        let hides_access = match &salvaged {
            Some(Object::Policy(policy)) if policy.kind() == Kind::AccessPolicy => {
                policy.hides_targets(value)
            }
            Some(_) => false,
            None => may_be_access(value),
        };
        Self {
            why,
            salvaged,
            hides_access,
        }
    }

    /// What is in effect of the text of a document that is no document, `value` being what stands
    /// before the mistake.
    pub fn cut(value: &Value, document: &str, why: String) -> Self {
        let mut unreadable = Self::new(value, ParseError::Schema(why));
        let document = document.to_ascii_lowercase();
        let is_mentioned = || document.contains(ACCESS) || document.contains(OWN_GROUP);
        // More targets may follow.
        unreadable.hides_access |=
            is_access(value) || text(value, "kind").is_none() && is_mentioned();
        unreadable.salvaged = unreadable
            .salvaged
            .filter(|object| matches!(object, Object::Policy(policy) if policy.is_on_requests()));
        unreadable
    }
}

/// The group of an `apiVersion`; empty if it has none.
fn group(value: &Value) -> &str {
    let version = text(value, "apiVersion").unwrap_or_default();
    version.split_once('/').map_or("", |(group, _)| group)
}

fn is_access(value: &Value) -> bool {
    text(value, "kind").is_some_and(|kind| kind.eq_ignore_ascii_case(ACCESS))
}

/// True for an AccessPolicy, in whatever spelling, and for what may be one: an object of our group
/// whose kind is not known.
fn may_be_access(value: &Value) -> bool {
    let kind = text(value, "kind").unwrap_or_default();
    let is_known = Kind::READ.iter().any(|known| known.as_str() == kind);
    is_access(value) || group(value) == OWN_GROUP && !is_known
}

/// A copy of an object whose kind we read, in whatever version. An AccessPolicy is one in whatever
/// spelling, group and name.
fn with_known_kind(value: &Value) -> Option<Value> {
    let mut copy = value.clone();
    if is_access(value) {
        copy["kind"] = json!(Kind::AccessPolicy.as_str());
        copy["metadata"] = metadata(value)?;
        return Some(copy);
    }
    let kind = text(value, "kind")?;
    Kind::read_as(kind)
        .filter(|known| known.group() == group(value))
        .map(|_| copy)
}

/// Metadata with a namespace and a name, one of our own if there is none.
fn metadata(value: &Value) -> Option<Value> {
    let written = &value["metadata"];
    let meta = read(written, Fields::Any).ok();
    if meta.is_some_and(|meta| Meta::read(Kind::AccessPolicy, &meta).is_ok()) {
        return Some(written.clone());
    }
    if !written.is_object() && !written.is_null() {
        return None;
    }
    let namespace = match written.get("namespace") {
        None | Some(Value::Null) => "default",
        Some(namespace) => namespace.as_str().filter(|name| is_label(name))?,
    };
    let name = text(written, "name").filter(|name| is_label(name));
    let name = name.map_or_else(
        || {
            let mut hasher = DefaultHasher::new();
            value.to_string().hash(&mut hasher);
            format!("unreadable-{:016x}", hasher.finish())
        },
        str::to_owned,
    );
    Some(json!({"namespace": namespace, "name": name}))
}
