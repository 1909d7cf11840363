//! Readiness over HTTP for load balancers: a listener that forwards to `/ready` of the admin
//! interface and nothing else. Envoy opens no listener before the first clusters and listeners have
//! arrived; then the response is 200, and 503 while Envoy drains.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::limits;

/// The name of the listener and of its cluster.
const NAME: &str = "gatewright-ready";
/// The most concurrent connections. Any client that can reach the address may connect: a connection
/// has one request, and a second to send it, so that occupying all of them takes as many new
/// connections every second.
const CONNECTIONS: u32 = 1024;
const TIMEOUT: &str = "1s";

/// The cluster of the admin interface, at its address.
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
        // An overloaded Envoy stays ready: otherwise its neighbours would get more load.
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
