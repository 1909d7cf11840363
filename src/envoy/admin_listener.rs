//! Listeners that forward one request to Envoy's admin interface, and nothing else of it: readiness
//! for load balancers, and statistics for Prometheus. Envoy opens no listener before the first
//! clusters and listeners have arrived.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::limits;
use super::statistics::{ShownStatistics, StatisticsReader};

const BASIC_AUTH: &str = "envoy.filters.http.basic_auth";
const RATE_LIMIT: &str = "envoy.filters.http.local_ratelimit";

/// The answers of one listener, to whom, and how much of it. Any client that can reach the address
/// may connect.
pub(super) struct AdminListener {
    /// The name of the listener and of its cluster.
    name: &'static str,
    /// The path of the request; with another one, or with a query, the answer is 404.
    path: &'static str,
    /// The path that the admin interface is asked for.
    asked: String,
    /// The reader who is answered; `None` if it is everybody.
    reader: Option<StatisticsReader>,
    /// The most concurrent connections.
    connections: u32,
    /// The requests of a connection.
    requests: u32,
    /// The time for a request, and for the headers of one.
    timeout: &'static str,
    idle: &'static str,
    /// How often the admin interface is asked, by all clients together; ten times at once.
    interval: Option<&'static str>,
}

/// Readiness: 200, and 503 while Envoy drains. A connection has one request, and a second to send
/// it, so that occupying all of them takes as many new connections every second.
pub(super) fn readiness() -> AdminListener {
    AdminListener {
        name: "gatewright-ready",
        path: "/ready",
        asked: "/ready".to_owned(),
        reader: None,
        connections: 1024,
        requests: 1,
        timeout: "1s",
        idle: "1s",
        interval: None,
    }
}

/// Statistics for Prometheus. The main thread answers, so the requests are few.
pub(super) fn statistics(shown: &ShownStatistics) -> AdminListener {
    AdminListener {
        name: "gatewright-stats",
        path: "/stats/prometheus",
        asked: format!("/stats/prometheus?filter={}", shown.filter()),
        reader: shown.reader().cloned(),
        connections: 16,
        requests: 1000,
        timeout: "10s",
        idle: "120s",
        interval: Some("2s"),
    }
}

impl AdminListener {
    /// The cluster of the admin interface, at its address.
    pub(super) fn cluster(&self, admin: &Value) -> Value {
        json!({
            "name": self.name,
            "type": "STATIC",
            "connect_timeout": format!("{}s", limits::CONNECT_SECONDS),
            "load_assignment": {
                "cluster_name": self.name,
                "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": admin } }] }],
            },
        })
    }

    /// The listener, with TLS if there is a transport socket.
    pub(super) fn listener(&self, at: SocketAddr, tls: Option<Value>) -> Value {
        let mut chain = json!({ "filters": [self.connection_limit(), self.connection_manager()] });
        if let Some(tls) = tls {
            chain["transport_socket"] = tls;
            chain["transport_socket_connect_timeout"] = json!(self.timeout);
        }
        json!({
            "name": self.name,
            "address": { "socket_address": { "address": at.ip().to_string(), "port_value": at.port() } },
            // An overloaded Envoy stays ready, since otherwise its neighbours would get more load,
            // and says that it is overloaded.
            "bypass_overload_manager": true,
            "per_connection_buffer_limit_bytes": 16 << 10,
            "filter_chains": [chain],
        })
    }

    fn connection_limit(&self) -> Value {
        json!({ "name": "envoy.filters.network.connection_limit", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit",
            "stat_prefix": self.name, "max_connections": self.connections.to_string(),
        } })
    }

    fn connection_manager(&self) -> Value {
        // The header has the path as the client sent it: nothing is decoded or normalized, and a
        // query is part of it.
        let get = [exact(":method", "GET"), exact(":path", self.path)];
        let mut route = json!({
            "match": { "path": self.path, "headers": get },
            "route": { "cluster": self.name, "timeout": self.timeout, "prefix_rewrite": self.asked },
        });
        if let Some(interval) = self.interval {
            let bucket =
                json!({ "max_tokens": 10, "tokens_per_fill": 1, "fill_interval": interval });
            route["typed_per_filter_config"] = json!({ RATE_LIMIT: self.rate_limit(Some(bucket)) });
        }
        let router = json!({ "name": "envoy.filters.http.router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        } });
        // Requests that no route matches are not counted.
        let limit = json!({ "name": RATE_LIMIT, "typed_config": self.rate_limit(None) });
        // Requests without the password come first, so that they are not counted either.
        let filters: Vec<Value> = self
            .reader
            .iter()
            .map(basic_auth)
            .chain([limit, router])
            .collect();
        json!({ "name": "envoy.filters.network.http_connection_manager", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": self.name,
            "codec_type": "HTTP1",
            "request_timeout": self.timeout,
            "request_headers_timeout": self.timeout,
            "common_http_protocol_options": {
                "idle_timeout": self.idle, "max_requests_per_connection": self.requests,
            },
            "route_config": { "name": self.name, "virtual_hosts": [
                { "name": self.name, "domains": ["*"], "routes": [route] },
            ] },
            "http_filters": filters,
        } })
    }

    fn rate_limit(&self, bucket: Option<Value>) -> Value {
        let always = json!({ "default_value": { "numerator": 100 } });
        let mut limit = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
            "stat_prefix": self.name,
        });
        if let Some(bucket) = bucket {
            limit["token_bucket"] = bucket;
            limit["filter_enabled"] = always.clone();
            limit["filter_enforced"] = always;
        }
        limit
    }
}

fn basic_auth(reader: &StatisticsReader) -> Value {
    json!({ "name": BASIC_AUTH, "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.basic_auth.v3.BasicAuth",
        "users": { "inline_string": reader.user() },
    } })
}

fn exact(header: &str, value: &str) -> Value {
    json!({ "name": header, "string_match": { "exact": value } })
}
