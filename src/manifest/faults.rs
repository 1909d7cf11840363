//! All faults of an object that cannot be read, each with what may have been meant. Pure.
//!
//! A reader stops at the first fault. What is wrong is removed from a copy, and that is read again.

use gatewright_core::inputs::{Kind, Object, ParseError};
use serde_json::Value;

use crate::definitions;
use crate::schema::nearest;

/// The most faults of an object that are told.
const MOST: usize = 10;

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The path of the field, if there is one.
    pub(super) field: Option<String>,
    /// What is wrong, and what may have been meant.
    pub(super) reason: String,
}

/// The faults of an object, of which the first is known.
pub(super) fn faults(object: &Value, first: ParseError) -> Vec<Fault> {
    let mut rest = object.clone();
    let mut found = Vec::new();
    let mut next = Some(first);
    while let Some(error) = next.take() {
        let removed = remove_field(&error, &mut rest);
        found.push(fault(object, &error));
        if removed && found.len() < MOST {
            // What a removed field leaves behind is no fault of the author.
            next = Object::parse_written(&rest)
                .err()
                .map(|unreadable| unreadable.why)
                .filter(|error| !error.to_string().contains("missing field"));
        }
    }
    found
}

/// Removes the field that an error names. Returns whether it was there.
fn remove_field(error: &ParseError, object: &mut Value) -> bool {
    match error {
        ParseError::UnknownField(path) | ParseError::Field { path, .. } => remove(object, path),
        _ => false,
    }
}

/// Removes what a path such as `spec.rules[1].port` leads to; keys may have dots.
fn remove(value: &mut Value, path: &str) -> bool {
    let path = path.strip_prefix('.').unwrap_or(path);
    match value {
        Value::Object(fields) => {
            if fields.remove(path).is_some() {
                return true;
            }
            fields.iter_mut().any(|(key, field)| {
                let rest = path.strip_prefix(key.as_str());
                rest.filter(|rest| rest.starts_with(['.', '[']))
                    .is_some_and(|rest| remove(field, rest))
            })
        }
        Value::Array(items) => {
            let Some((number, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']'))
            else {
                return false;
            };
            let item = number
                .parse()
                .ok()
                .and_then(|number: usize| items.get_mut(number));
            // An item that is removed would move the others.
            item.is_some_and(|item| !rest.is_empty() && remove(item, rest))
        }
        _ => false,
    }
}

/// The fault that an error tells.
fn fault(object: &Value, error: &ParseError) -> Fault {
    let (field, instead) = match error {
        ParseError::UnknownField(path) => {
            let kind = object.get("kind").and_then(Value::as_str);
            let instead = kind.and_then(|kind| definitions::instead(kind, path));
            (Some(path.clone()), instead)
        }
        ParseError::Field { path, text } => (Some(path.clone()), value_instead(text)),
        ParseError::UnknownKind { kind, .. } => {
            let kinds = Kind::READ.iter().map(|kind| kind.as_str());
            (None, nearest(kind, kinds).map(str::to_owned))
        }
        _ => (None, None),
    };
    let reason = match instead {
        Some(instead) => format!("{error}: did you mean {instead}?"),
        None => error.to_string(),
    };
    Fault { field, reason }
}

/// The value that somebody may have meant, by an error with all that are possible.
fn value_instead(text: &str) -> Option<String> {
    let quoted = text.strip_prefix("unknown value ")?.split('`');
    let mut values = quoted.skip(1).step_by(2);
    let written = values.next()?;
    nearest(written, values).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(object: &Value) -> Vec<String> {
        let unreadable = Object::parse_written(object).expect_err("it is wrong");
        let found = faults(object, unreadable.why);
        found.into_iter().map(|fault| fault.reason).collect()
    }

    #[test]
    fn every_fault_is_told_with_what_may_have_been_meant() {
        let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "a"}, "spec": {"hostname": ["a.example.org"], "rules": [{
                "matches": [{"path": {"type": "Prefix", "value": "/"}}],
                "backendRefs": [{"name": "web", "port": "80"}], "backendRef": []}]}});
        let mut faults = told(&route);
        faults.sort();
        assert_eq!(
            faults,
            [
                "spec.rules[0].backendRefs[0].port: expected a whole number, found \"80\"",
                "spec.rules[0].matches[0].path.type: unknown value `Prefix`, expected one of `Exact`, `PathPrefix`, \
                 `RegularExpression`: did you mean PathPrefix?",
                "unknown field spec.hostname: did you mean spec.hostnames?",
                "unknown field spec.rules[0].backendRef: did you mean spec.rules[0].backendRefs?",
            ]
        );
    }

    #[test]
    fn a_kind_that_is_nearly_one_is_named() {
        let kind = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HttpRoutes", "metadata": {"name": "a"}});
        let told = told(&kind);
        assert!(
            told.len() == 1 && told[0].ends_with(": did you mean HTTPRoute?"),
            "{told:?}"
        );
    }

    #[test]
    fn a_secret_has_no_value_in_any_fault() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
            "data": {"tls.key": "-----BEGIN"}, "stringData": {"a": 4711}, "typ": "x"});
        let told = told(&secret);
        assert!(
            told.len() > 1
                && told
                    .iter()
                    .all(|reason| !reason.contains("4711") && !reason.contains("BEGIN")),
            "{told:?}"
        );
    }
}
