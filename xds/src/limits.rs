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
    /// On-demand secrets that do not exist and that a stream remembers being asked for, beside the above: of more, the
    /// longest unasked are forgotten. They are answered all the same, and take no place of those that exist.
    pub unknown_secrets: usize,
    /// Names of secrets that begin so are regular ones, never taken back: a listener waits for them.
    pub regular_secret_prefix: String,
    /// Streams of one identity.
    pub streams_per_identity: usize,
    /// Streams of one instance of an identity: an Envoy has one, and a second while it does not know yet that the first is lost.
    pub streams_per_instance: usize,
    /// Streams of one identity from one address: of a pod, where each pod has an address.
    pub streams_per_address: usize,
    /// Streams of one identity from one /64 of IPv6, which has more addresses than anybody can count: of a node, where its pods
    /// share one, or of all that one client has.
    pub streams_per_network: usize,
    /// Connections in all.
    pub connections: usize,
    /// Connections over TCP that have no stream.
    pub idle_connections: usize,
    /// Those of one address (of IPv6, of one /64). The oldest one makes way for the next.
    pub idle_connections_per_address: usize,
    /// Concurrent streams of one connection.
    pub streams_per_connection: u32,
    /// HTTP/2 window of a stream: bytes that a client may send ahead of the server reading them.
    pub stream_window_bytes: u32,
    /// HTTP/2 window of a connection. The HTTP/2 library (h2 0.4) ends a connection on which many small frames lie
    /// unread, half of this window being what they may weigh, each at 256 bytes less its own. Sixteen times a stream's
    /// window, it is the stream's window that makes a fast client wait.
    pub connection_window_bytes: u32,
    /// Requests one stream may send at once, those for secrets aside: strangers decide how many secrets Envoy asks for,
    /// and one request for one costs the server less than reading late costs everybody.
    pub request_burst: u32,
    /// Requests one stream may send per second, on average; the same ones count.
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
    /// How long a connection over TCP may take for its TLS handshake and its first stream, and how long it may stay after its
    /// last one.
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
            on_demand_secrets: 5_000,
            unknown_secrets: 1_024,
            regular_secret_prefix: "sds/".into(),
            streams_per_identity: 1024,
            streams_per_instance: 4,
            streams_per_address: 16,
            streams_per_network: 256,
            connections: 16_384,
            idle_connections: 512,
            idle_connections_per_address: 64,
            streams_per_connection: 256,
            stream_window_bytes: 1 << 20,
            connection_window_bytes: 16 << 20,
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
