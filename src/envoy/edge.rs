//! Limits of connections that an operator sets.

use super::traffic::TrafficMetrics;

/// The settings of an operator for all listeners and backends: limits of connections, and what is
/// counted. A change of one changes every filter chain or every cluster, which closes connections:
/// Envoy drains those of the old ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The idle timeout of a client's HTTP connection, in seconds.
    pub idle_seconds: u64,
    /// The idle timeout of a passed-through connection, in seconds.
    pub tcp_idle_seconds: u64,
    /// The idle timeout of a UDP session, in seconds.
    pub udp_idle_seconds: u64,
    /// The most UDP sessions of one Envoy on one port, its part of
    /// [`UdpSessions`](super::UdpSessions); a session is the datagrams of one client socket.
    pub udp_port_sessions: u32,
    /// The maximum duration of a client's HTTP connection, in seconds; 0 for no limit.
    pub max_connection_seconds: u64,
    /// The most connections of one Envoy to one backend (a port of a Service), and the most active
    /// or pending requests there.
    pub backend_connections: u32,
    /// The counts of requests beside those of Envoy.
    pub traffic: TrafficMetrics,
}

impl Edge {
    /// The defaults.
    pub const DEFAULT: Edge = Edge {
        idle_seconds: 300,
        tcp_idle_seconds: 900,
        udp_idle_seconds: 30,
        udp_port_sessions: 4096,
        max_connection_seconds: 3600,
        backend_connections: 4096,
        traffic: TrafficMetrics::Off,
    };
}

impl Default for Edge {
    fn default() -> Self {
        Self::DEFAULT
    }
}
