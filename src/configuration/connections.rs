//! Connections of clients, and to backends.

use garde::Validate;
use gatewright_core::limits::Limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use gatewright_envoy as envoy;
use gatewright_envoy::UdpSessions;

/// Connections of clients, and to backends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Connections {
    /// Idle timeout of a client's HTTP connection without a request, in seconds
    #[garde(range(min = 1, max = 86_400))]
    pub idle_seconds: u64,
    /// Idle timeout of a TLS passthrough or TCP connection without bytes, in seconds
    #[garde(range(min = 1, max = 86_400))]
    pub tcp_idle_seconds: u64,
    /// Idle timeout of a UDP session without datagrams, in seconds; a session is what one socket of
    /// a client sends
    #[garde(range(min = 1, max = 3600))]
    pub udp_idle_seconds: u64,
    /// Maximum number of UDP sessions of an Envoy. Each UDP port has an equal part of them, by
    /// limits.udpPorts, and drops datagrams of further clients. Without it: 65536; standalone:
    /// fewer where the limit of open files is small
    #[garde(inner(range(min = 1, max = 1_000_000)))]
    pub udp_sessions: Option<u32>,
    /// Maximum age of a client's HTTP connection, in seconds; it is then closed gracefully, between
    /// two requests; 0 for no maximum
    #[garde(range(max = 604_800))]
    pub max_age_seconds: u64,
    /// Maximum number of connections of an Envoy to one port of one Service, and of pending
    /// requests there; further requests are answered 503, further TCP connections are closed
    #[garde(range(min = 1, max = 1_000_000))]
    pub to_service: u32,
}

impl Default for Connections {
    fn default() -> Self {
        let default = envoy::Edge::DEFAULT;
        Self {
            idle_seconds: default.idle_seconds,
            tcp_idle_seconds: default.tcp_idle_seconds,
            udp_idle_seconds: default.udp_idle_seconds,
            udp_sessions: None,
            max_age_seconds: default.max_connection_seconds,
            to_service: default.backend_connections,
        }
    }
}

impl Connections {
    /// The part that is in Envoy's configuration.
    pub fn edge(&self, sessions: UdpSessions, limits: &Limits) -> envoy::Edge {
        envoy::Edge {
            idle_seconds: self.idle_seconds,
            tcp_idle_seconds: self.tcp_idle_seconds,
            udp_idle_seconds: self.udp_idle_seconds,
            udp_port_sessions: sessions.of_port(limits.udp_ports),
            max_connection_seconds: self.max_age_seconds,
            backend_connections: self.to_service,
            ..envoy::Edge::DEFAULT
        }
    }
}
