//! The rate at which an Envoy asks a token endpoint: only there a refresh token is known to be one,
//! so that each request with an invented session has Envoy ask.
//!
//! Beyond it a login or a renewal fails as at a provider that is down. Envoy's filter for rate
//! limits cannot be one of a cluster, so a script counts, for each worker. It never runs for a
//! request of a client.

use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

use super::{limits, upstream_script};

/// The script, with places for numbers.
const SCRIPT: &str = include_str!("login_rate.lua");

/// The filters of the cluster of a token endpoint.
pub(super) fn filters() -> Vec<HttpFilter> {
    let numbers = [
        ("@AT_ONCE@", limits::LOGINS_AT_ONCE),
        ("@PER_SECOND@", limits::LOGINS_PER_SECOND),
    ];
    upstream_script::filters(SCRIPT, &numbers)
}
