//! How a load balancer asks an Envoy over HTTP whether it is ready: a listener of its own that leads to `/ready` of the admin interface and
//! nowhere else. Nobody answers until the first clusters and listeners have come, as Envoy opens no listener before; then it
//! is 200, and 503 while Envoy drains.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::limits;

/// What the listener and its cluster are called.
const NAME: &str = "gatewright-ready";
/// Connections at a time. Whoever reaches the address reaches it: a connection has one request, and a second to make it,
/// so that holding all of these takes as many new ones every second.
const CONNECTIONS: u32 = 1024;
const TIMEOUT: &str = "1s";

/// The cluster that leads to the admin interface, at its address.
pub(super) fn cluster(admin: &Value) -> Value {
    json!({
        "name": NAME,
        "type": "STATIC",
        "connect_timeout": format!("{}s", limits::CONNECT_SECONDS),
        "load_assignment": {
            "cluster_name": NAME,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": admin } }] }],
        },
    })
}

/// The listener.
pub(super) fn listener(at: SocketAddr) -> Value {
    let get = json!([{ "name": ":method", "string_match": { "exact": "GET" } }]);
    json!({
        "name": NAME,
        "address": { "socket_address": { "address": at.ip().to_string(), "port_value": at.port() } },
        // An Envoy that has too much to do is not taken out by that: its neighbours would have more.
        "bypass_overload_manager": true,
        "per_connection_buffer_limit_bytes": 16 << 10,
        "filter_chains": [{ "filters": [
            { "name": "envoy.filters.network.connection_limit", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit",
                "stat_prefix": NAME, "max_connections": CONNECTIONS.to_string(),
            } },
            { "name": "envoy.filters.network.http_connection_manager", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": NAME,
                "codec_type": "HTTP1",
                "request_timeout": TIMEOUT,
                "request_headers_timeout": TIMEOUT,
                "common_http_protocol_options": { "idle_timeout": TIMEOUT, "max_requests_per_connection": 1 },
                "normalize_path": true,
                "route_config": { "name": NAME, "virtual_hosts": [{ "name": NAME, "domains": ["*"], "routes": [
                    { "match": { "path": "/ready", "headers": get }, "route": { "cluster": NAME, "timeout": TIMEOUT } },
                ] }] },
                "http_filters": [{ "name": "envoy.filters.http.router", "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
                } }],
            } },
        ] }],
    })
}
