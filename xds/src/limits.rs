//! Bounds of everything a client can make the server hold or do.

use std::time::Duration;

/// Bounds. The defaults fit an Envoy with 100,000 hosts.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of one request message.
    pub request_bytes: usize,
    /// Names in one subscription.
    pub names: usize,
    /// Bytes of one subscribed name.
    pub name_bytes: usize,
    /// Resources in one response.
    pub response_resources: usize,
    /// Bytes of resources in one response; one larger resource travels alone.
    pub response_bytes: usize,
    /// On-demand secrets one stream may hold; beyond, the longest unasked are taken back. Envoy keeps
    /// about 31 KB for each and has no limit of its own before 1.41.
    pub on_demand_secrets: usize,
    /// Names of secrets that begin so are regular ones, never taken back: a listener waits for them.
    pub regular_secret_prefix: String,
    /// Streams of one identity.
    pub streams_per_identity: usize,
    /// Connections in all.
    pub connections: usize,
    /// Concurrent streams of one connection.
    pub streams_per_connection: u32,
    /// Requests one stream may send at once.
    pub request_burst: u32,
    /// Requests one stream may send per second, on average.
    pub requests_per_second: u32,
    /// Times a stream takes up changes of its view at once.
    pub push_burst: u32,
    /// Times a stream takes up changes of its view per second, on average. What changes faster travels together:
    /// an exchange with a client costs much more than one more resource in it.
    pub pushes_per_second: u32,
    /// How long a client may leave a response unanswered.
    pub answer_within: Duration,
    /// How often an idle connection is asked for a sign of life, and how long it may take.
    pub keepalive: Duration,
    /// How long a connection may take for its TLS handshake and its first request.
    pub handshake: Duration,
    /// How long shutdown waits for connections to close.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request_bytes: 16 << 20,
            names: 200_000,
            name_bytes: 4096,
            response_resources: 500,
            response_bytes: 3 << 20,
            on_demand_secrets: 20_000,
            regular_secret_prefix: "sds/".into(),
            streams_per_identity: 1024,
            connections: 16_384,
            streams_per_connection: 256,
            request_burst: 10_000,
            requests_per_second: 2_000,
            push_burst: 64,
            pushes_per_second: 250,
            answer_within: Duration::from_secs(120),
            keepalive: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            drain: Duration::from_secs(5),
        }
    }
}
