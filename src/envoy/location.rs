//! The `Location` of a redirect without the default port of its scheme (Gateway API
//! `HTTPRequestRedirectFilter.port`).
//!
//! Envoy keeps the port of the request's host, unless a redirect has one, which it then writes even
//! if it is the default. Where the hostname of a redirect is not known, two filters take that port
//! out of the answer; routes turn them on.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as MutatesHeaders, HeaderMutationPerRoute, Mutations,
};
use envoy_types::pb::envoy::extensions::filters::http::header_to_metadata::v3::{
    Config as HeaderToMetadata,
    config::{KeyValuePair, Rule},
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use envoy_types::pb::google::protobuf::Any;

use super::headers::mutation;
use super::proto::{any, http_filter, map_with};
use super::request_match::regex_matcher;

/// Writes the new value: Envoy's header mutation filter.
const WRITE: &str = "gatewright.write_location";

/// Reads the value, without the port: Envoy's header to metadata filter.
const READ: &str = "gatewright.read_location";

const HEADER: &str = "location";

/// The default port of either scheme, at the end of an authority.
const WITH_DEFAULT_PORT: &str = "^(?:(https://[^/?#]*):443|(http://[^/?#]*):80)([/?#]|$)";

/// The filters, in their order in a connection manager: an answer passes the last one first. What
/// they do routes say.
pub(super) fn filters() -> [HttpFilter; 2] {
    [
        http_filter(WRITE, &MutatesHeaders::default()),
        http_filter(READ, &HeaderToMetadata::default()),
    ]
}

/// Adds to the configuration of a route's filters that these take the port out.
pub(super) fn turned_on(configs: &HashMap<String, Any>) -> HashMap<String, Any> {
    map_with(&map_with(configs, WRITE, any(&write())), READ, any(&read()))
}

fn read() -> HeaderToMetadata {
    let without_port = RegexMatchAndSubstitute {
        pattern: Some(regex_matcher(WITH_DEFAULT_PORT)),
        substitution: r"\1\2\3".to_owned(),
    };
    let rule = Rule {
        header: HEADER.to_owned(),
        on_header_present: Some(KeyValuePair {
            metadata_namespace: READ.to_owned(),
            key: HEADER.to_owned(),
            regex_value_rewrite: Some(without_port),
            ..Default::default()
        }),
        ..Default::default()
    };
    HeaderToMetadata {
        response_rules: vec![rule],
        ..Default::default()
    }
}

fn write() -> HeaderMutationPerRoute {
    let value = format!("%DYNAMIC_METADATA({READ}:{HEADER})%");
    let overwrite = mutation(HEADER, &value, HeaderAppendAction::OverwriteIfExists);
    let mutations = Mutations {
        response_mutations: vec![overwrite],
        ..Default::default()
    };
    HeaderMutationPerRoute {
        mutations: Some(mutations),
    }
}
