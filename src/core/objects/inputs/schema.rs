//! Checks of the Gateway API's schema that the generated types do not make: sizes of lists.
//! Patterns are in `text.rs`.
//!
//! They are needed because a manifest may come from a file that no API server has validated.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ParseError;
use super::document::{Fields, read};
use crate::model::{Hostname, HostnameError};

/// The message about an empty hostname.
const EMPTY_HOSTNAME: &str = "is empty: write a hostname, or remove it";

/// Returns a schema error for `field`.
fn refuse<T>(field: &str, text: &str) -> Result<T, ParseError> {
    Err(ParseError::Schema(format!("{field}: {text}")))
}

/// Checks that a list is no longer than the schema allows (`maxItems`).
pub(super) fn at_most<T>(field: &str, most: usize, list: Vec<T>) -> Result<Vec<T>, ParseError> {
    if list.len() > most {
        return refuse(
            field,
            &format!("{} items, at most {most} are allowed", list.len()),
        );
    }
    Ok(list)
}

/// Reads the hostnames of a route. An empty one, as from an empty value of a template, is refused
/// (`minLength`): it would match every name.
pub(super) fn hostnames(
    texts: &[String],
) -> Result<Arc<[Result<Hostname, HostnameError>]>, ParseError> {
    match texts.iter().position(String::is_empty) {
        Some(index) => refuse(&format!("spec.hostnames[{index}]"), EMPTY_HOSTNAME),
        None => Ok(texts.iter().map(|text| Hostname::parse(text)).collect()),
    }
}

/// Reads the hostname of a listener; without one it has every name.
pub(super) fn hostname(
    field: &str,
    text: Option<&str>,
) -> Result<Result<Hostname, HostnameError>, ParseError> {
    match text {
        Some("") => refuse(field, EMPTY_HOSTNAME),
        Some(text) => Ok(Hostname::parse(text)),
        None => Ok(Ok(Hostname::any())),
    }
}

/// Checks a port number.
pub(super) fn port(number: i32, field: &str) -> Result<u16, ParseError> {
    u16::try_from(number)
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(|| ParseError::Schema(format!("{field}: {number} is not a port (1 to 65535)")))
}

/// Converts one generated type into another one of the same shape.
pub(super) fn same_shape<T: Serialize, U: DeserializeOwned>(value: T) -> Result<U, ParseError> {
    let value = serde_json::to_value(value).map_err(|e| ParseError::Schema(e.to_string()))?;
    read(&value, Fields::Any)
}

/// Collects a list without spare capacity: objects are kept for long and never grow.
pub(super) fn exact<T, E>(items: impl Iterator<Item = Result<T, E>>) -> Result<Vec<T>, E> {
    let mut all = items.collect::<Result<Vec<T>, E>>()?;
    all.shrink_to_fit();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Object;

    #[test]
    fn an_empty_hostname_is_refused_with_its_field() {
        let rules = json!([{"backendRefs": [{"name": "a", "port": 80}]}]);
        fn route(hostnames: Value, rules: &Value) -> Value {
            json!({"hostnames": hostnames, "rules": rules})
        }
        let listeners = json!([{"name": "web", "port": 80, "protocol": "HTTP", "hostname": ""}]);
        let gateway = json!({"gatewayClassName": "c", "listeners": listeners});
        let set = json!({"parentRef": {"name": "g"}, "listeners": listeners});
        for (kind, spec, field) in [
            ("HTTPRoute", route(json!([""]), &rules), "spec.hostnames[0]"),
            (
                "HTTPRoute",
                route(json!(["a.org", ""]), &rules),
                "spec.hostnames[1]",
            ),
            ("GRPCRoute", route(json!([""]), &rules), "spec.hostnames[0]"),
            (
                "TLSRoute",
                route(json!(["", "a.org"]), &rules),
                "spec.hostnames[0]",
            ),
            ("Gateway", gateway, "spec.listeners[web].hostname"),
            ("ListenerSet", set, "spec.listeners[web].hostname"),
        ] {
            let api_version = "gateway.networking.k8s.io/v1";
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
            let why = Object::parse(object).expect_err(kind).to_string();
            assert_eq!(
                why,
                format!("{field}: is empty: write a hostname, or remove it"),
                "{kind}"
            );
        }
    }
}
