//! What an operator sets of the limits at the edge.

/// Limits of connections, at the listeners and towards backends. A change of one changes every filter chain or every
/// cluster, which ends connections: Envoy drains those of the old ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Seconds that an HTTP connection of a client may have no request.
    pub idle_seconds: u64,
    /// Seconds that a connection which is passed through may have no bytes.
    pub tcp_idle_seconds: u64,
    /// Seconds that a UDP session may have no datagrams.
    pub udp_idle_seconds: u64,
    /// UDP sessions of one Envoy on one port: what a client sends by one socket of its own.
    pub udp_sessions: u32,
    /// Seconds after which an HTTP connection of a client is ended in order; 0 for never.
    pub max_connection_seconds: u64,
    /// Connections of one Envoy to one backend (a port of a Service), and requests under way or waiting there.
    pub backend_connections: u32,
}

impl Edge {
    /// The defaults.
    pub const DEFAULT: Edge = Edge {
        idle_seconds: 300,
        tcp_idle_seconds: 900,
        udp_idle_seconds: 30,
        udp_sessions: 16_384,
        max_connection_seconds: 3600,
        backend_connections: 4096,
    };
}

impl Default for Edge {
    fn default() -> Self {
        Self::DEFAULT
    }
}
