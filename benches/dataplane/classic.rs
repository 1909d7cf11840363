//! The classic Envoy: a static configuration as one writes it by hand, without a control plane and
//! with Envoy's defaults wherever they are safe. One filter chain per host, with its certificate
//! and its routes.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use e2e::envoy::Envoy;
use e2e_inside::world::UNDISTURBED;
use serde_json::{Value, json};

use super::hosts::name;

/// Starts the classic Envoy with some hosts, whose requests go to one backend.
pub(super) async fn start(count: usize, port: u16, backend: SocketAddr) -> Result<Envoy> {
    let chains = (0..count).map(chain).collect::<Result<Vec<_>>>()?;
    let bootstrap = json!({
        "admin": { "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } } },
        "stats_flush_interval": UNDISTURBED,
        "static_resources": {
            "clusters": [cluster(backend)],
            "listeners": [{
                "name": "https",
                "address": address((Ipv4Addr::LOCALHOST, port).into()),
                "per_connection_buffer_limit_bytes": 32_768,
                "listener_filters": [{
                    "name": "envoy.filters.listener.tls_inspector",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
                    },
                }],
                "filter_chains": chains,
            }],
        },
    });
    let mut envoy = Envoy::start_counted(&bootstrap.to_string()).await?;
    envoy.ready().await?;
    Ok(envoy)
}

fn chain(n: usize) -> Result<Value> {
    let made = rcgen::generate_simple_self_signed([name(n)])?;
    let certificate = json!({
        "certificate_chain": { "inline_string": made.cert.pem() },
        "private_key": { "inline_string": made.signing_key.serialize_pem() },
    });
    Ok(json!({
        "name": name(n),
        "filter_chain_match": { "server_names": [name(n)] },
        "filters": [{ "name": "http", "typed_config": manager(&name(n)) }],
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
                "common_tls_context": {
                    "alpn_protocols": ["h2", "http/1.1"],
                    "tls_certificates": [certificate],
                },
            },
        },
    }))
}

fn manager(host: &str) -> Value {
    json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "https",
        "use_remote_address": true,
        "normalize_path": true,
        "merge_slashes": true,
        "common_http_protocol_options": {
            "idle_timeout": "3600s",
            "headers_with_underscores_action": "REJECT_REQUEST",
        },
        "http2_protocol_options": {
            "max_concurrent_streams": 100,
            "initial_stream_window_size": 65_536,
            "initial_connection_window_size": 1_048_576,
        },
        "route_config": {
            "name": host,
            "virtual_hosts": [{
                "name": host,
                "domains": [host],
                "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "web" } }],
            }],
        },
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
        }],
    })
}

fn cluster(backend: SocketAddr) -> Value {
    json!({
        "name": "web",
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": "web",
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(backend) } }] }],
        },
    })
}

fn address(at: SocketAddr) -> Value {
    json!({ "socket_address": { "address": at.ip().to_string(), "port_value": at.port() } })
}
