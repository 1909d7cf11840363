//! What cases leave out of resources, so that they stay readable: what no object affects.

use std::path::Path;

use gatewright_core::request_outcome::{BROKEN_FILTERS, MISDIRECTED, NO_HOST, NO_ROUTE};
use serde_json::{Map, Value};

/// Returns whether a case is shown unabridged: the smallest one.
pub(crate) fn is_whole(input: &Path) -> bool {
    input.ends_with("httproute-on-plain-http.in.yaml")
}

/// Returns whether a case shows the access log, and what is there for it.
pub(crate) fn has_access_log(input: &Path) -> bool {
    is_whole(input) || input.to_string_lossy().contains("access-log")
}

/// Removes the access log, and the names of virtual hosts' owners and of our own routes, which are
/// there for it.
pub(crate) fn without_access_log(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("access_log");
            if fields.contains_key("domains")
                && let Some(Value::String(name)) = fields.get_mut("name")
            {
                name.truncate(name.find('|').unwrap_or(name.len()));
            }
            let is_route = fields.contains_key("direct_response");
            fields.retain(|name, value| {
                let is_cause = name == "name" && value.as_str().is_some_and(is_cause);
                !(is_route && is_cause)
            });
            fields.values_mut().for_each(without_access_log);
        }
        Value::Array(items) => items.iter_mut().for_each(without_access_log),
        _ => {}
    }
}

/// True for the names of routes that answer by themselves.
fn is_cause(name: &str) -> bool {
    [MISDIRECTED, NO_HOST, NO_ROUTE, BROKEN_FILTERS].contains(&name)
}

/// Abridges the output, so that a case stays readable: removes times, and those settings of
/// listeners, clusters and tables that no object affects.
pub(crate) fn abridge(value: &mut Value) {
    const CONSTANT: [&str; 29] = [
        "circuit_breakers",
        "common_http_protocol_options",
        "connect_timeout",
        "delayed_close_timeout",
        "http1_safe_max_connection_duration",
        "http_filters",
        "http_protocol_options",
        "ignore_health_on_host_removal",
        "internal_address_config",
        "lastTransitionTime",
        "listener_filters",
        "listener_filters_timeout",
        "max_connections_to_accept_per_socket_event",
        "max_request_headers_kb",
        "merge_slashes",
        "most_specific_header_mutations_wins",
        "normalize_path",
        "path_with_escaped_slashes_action",
        "per_connection_buffer_limit_bytes",
        "request_headers_timeout",
        "server_header_transformation",
        "stat_prefix",
        "supportedFeatures",
        "ignore_port_in_host_matching",
        "strip_trailing_host_dot",
        "transport_socket_connect_timeout",
        "upgrade_configs",
        "upstream_connection_options",
        "validate_clusters",
    ];
    match value {
        Value::Object(fields) => {
            if let Some(limits) = fields.get_mut("circuit_breakers") {
                // A policy's, among the limits that are an operator's.
                limits["thresholds"][0]
                    .as_object_mut()
                    .into_iter()
                    .for_each(|of| of.retain(|name, _| name == "retry_budget"));
            }
            without_common_replies(fields);
            let is_policy = |value: &Value| value["thresholds"][0]["retry_budget"].is_object();
            fields.retain(|name, value| !CONSTANT.contains(&name.as_str()) || is_policy(value));
            fields.values_mut().for_each(abridge);
        }
        Value::Array(items) => items.iter_mut().for_each(abridge),
        Value::String(text) if text.starts_with("-----BEGIN CERTIFICATE") => {
            // The last line of the certificate identifies it.
            *text = text.lines().rev().nth(1).unwrap_or_default().to_owned();
        }
        _ => {}
    }
}

/// Removes the change of a local reply that all connection managers have, of its status to 503.
fn without_common_replies(fields: &mut Map<String, Value>) {
    let Some(mappers) = fields
        .get_mut("local_reply_config")
        .and_then(|config| config["mappers"].as_array_mut())
    else {
        return;
    };
    mappers.retain(|mapper| mapper["status_code"] != 503);
    if mappers.is_empty() {
        fields.remove("local_reply_config");
    }
}
