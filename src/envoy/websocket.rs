//! WebSockets over HTTP/2 (RFC 8441) at backends of HTTP/1.1 (RFC 6455).
//!
//! An extended CONNECT has no `Sec-WebSocket-Key`. Envoy turns it into an upgrade of HTTP/1.1 and
//! makes no key, and a server must refuse an upgrade without one (RFC 6455, 4.2.1). So the requests
//! that are upgrades have a filter more. A backend of HTTP/2 gets an extended CONNECT again, in
//! which the key has no meaning (RFC 8441, 5), and so has the `Sec-WebSocket-Accept` that goes back
//! to the client.

use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as MutatesHeaders, Mutations,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_connection_manager::UpgradeConfig,
};

use super::headers::mutation;
use super::proto::http_filter;
use super::route_filters::COLLECT;

/// The filter that adds a key: Envoy's header mutation filter.
const KEY: &str = "gatewright.websocket_key";

/// A key, 16 bytes in base64 (RFC 6455, 4.1), which begins as the request id that Envoy makes does.
/// It is no secret: it keeps caches from the answer to another request. Empty, and thus not added,
/// over HTTP/1.1, where a client without a key is to be refused.
const VALUE: &str = "%CEL(request.protocol == 'HTTP/2' ? request.id : ''):8%\
                     %CEL(request.protocol == 'HTTP/2' ? 'Gatewright/AAA==' : '')%";

/// Upgrades to WebSockets, by the filters of all other requests, of which the router is the last.
/// None collects a body: what follows an upgrade never ends.
pub(super) fn upgrade(filters: &[HttpFilter]) -> UpgradeConfig {
    let mut filters: Vec<HttpFilter> = filters
        .iter()
        .filter(|filter| filter.name != COLLECT)
        .cloned()
        .collect();
    filters.insert(filters.len().saturating_sub(1), http_filter(KEY, &key()));
    UpgradeConfig {
        upgrade_type: "websocket".to_owned(),
        filters,
        ..Default::default()
    }
}

fn key() -> MutatesHeaders {
    let add = mutation("sec-websocket-key", VALUE, HeaderAppendAction::AddIfAbsent);
    let mutations = Mutations {
        request_mutations: vec![add],
        ..Default::default()
    };
    MutatesHeaders {
        mutations: Some(mutations),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_passes_every_filter_of_other_requests_and_the_router_last() {
        fn named(name: &str) -> HttpFilter {
            HttpFilter {
                name: name.to_owned(),
                ..Default::default()
            }
        }
        let made = upgrade(&[named("auth"), named(COLLECT), named("router")]);
        let names: Vec<_> = made
            .filters
            .iter()
            .map(|filter| filter.name.as_str())
            .collect();
        assert_eq!(names, ["auth", KEY, "router"]);
    }
}
