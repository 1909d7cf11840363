//! Limits of everything that a client can make the server hold or do.

use std::time::Duration;

/// The limits. The defaults fit an Envoy with 100,000 hosts.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest request message, in bytes.
    pub request_bytes: usize,
    /// Most names in one subscription.
    pub names: usize,
    /// Longest subscribed name, in bytes.
    pub name_bytes: usize,
    /// Most bytes of names that one stream keeps and that its view does not have, of all types
    /// together and including those that are to be answered. A name counts 128 bytes in addition to
    /// its length.
    pub unknown_names_bytes: usize,
    /// Most bytes of such names of all streams of one client: of an instance of an identity or,
    /// where credentials prove none, of an identity at one address (of IPv6, at one /64).
    pub unknown_names_bytes_per_client: usize,
    /// Most resources in one response.
    pub response_resources: usize,
    /// Most bytes of resources in one response; a larger resource is sent alone.
    pub response_bytes: usize,
    /// Most bytes of resources in one response of a round; a client does no more than this before
    /// it takes the next change. Envoy's main thread takes some 15 ms for 100 KB of listeners or
    /// clusters, and does nothing else meanwhile.
    pub round_bytes: usize,
    /// Most on-demand secrets of one stream; beyond, the least recently requested are withdrawn.
    /// Envoy has no limit of its own before 1.41.
    pub on_demand_secrets: usize,
    /// Most memory that these take in Envoy, in bytes, by the estimate of `on_demand.rs`; beyond,
    /// the same.
    pub on_demand_secret_memory: usize,
    /// Most requested on-demand secrets that do not exist and that a stream remembers, in addition
    /// to the above; beyond, the least recently requested are forgotten. They are answered all the
    /// same, and displace none.
    pub unknown_secrets: usize,
    /// Prefix of the names of regular secrets, which are never withdrawn: a listener waits for
    /// them.
    pub regular_secret_prefix: String,
    /// Most streams of one identity.
    pub streams_per_identity: usize,
    /// Most streams of one instance of an identity: an Envoy has one, and a second until the loss
    /// of the first is detected.
    pub streams_per_instance: usize,
    /// Most streams of one identity from one address: of a pod, where each pod has an address.
    pub streams_per_address: usize,
    /// Most streams of one identity from one /64 of IPv6, whose number of addresses is unlimited in
    /// practice: of a node, where its pods share one, or of all addresses that one client has.
    pub streams_per_network: usize,
    /// Most connections in all.
    pub connections: usize,
    /// Most connections over TCP without a stream.
    pub idle_connections: usize,
    /// Most of these from one address (of IPv6, from one /64). The newest evicts the oldest.
    pub idle_connections_per_address: usize,
    /// Most concurrent streams of one connection.
    pub streams_per_connection: u32,
    /// HTTP/2 window of a stream: bytes that a client may send before the server reads them.
    pub stream_window_bytes: u32,
    /// HTTP/2 window of a connection. The HTTP/2 library (h2 0.4) closes a connection with too many
    /// small unread frames: the limit is half of this window, and each frame counts 256 bytes less
    /// its size. At sixteen times a stream's window, it is the stream's window that makes a fast
    /// client wait.
    pub connection_window_bytes: u32,
    /// Most requests of one stream at once, except those for secrets: untrusted clients decide how
    /// many secrets Envoy requests, and one such request costs the server less than a delay costs
    /// everybody.
    pub request_burst: u32,
    /// Most requests of one stream per second, on average; the same requests count.
    pub requests_per_second: u32,
    /// Most updates of one stream at once after changes of its view.
    pub push_burst: u32,
    /// Most updates of one stream per second, on average. Faster changes are sent together: an
    /// exchange with a client costs much more than one more resource in it.
    pub pushes_per_second: u32,
    /// Returns true for an error of a client that may accept the same resource later, because the
    /// reason lies outside of the resource: it is offered again, with back-off, until it is
    /// accepted or changes.
    pub is_temporary: fn(&str) -> bool,
    /// Time until such a resource is offered again; doubled with each refusal.
    pub first_retry: Duration,
    /// Longest time until such a resource is offered again.
    pub longest_retry: Duration,
    /// Time within which a client must answer a response.
    pub answer_within: Duration,
    /// Interval of HTTP/2 pings on an idle connection, and time limit of their answer.
    pub keepalive: Duration,
    /// Time limit of a connection over TCP for its TLS handshake and its first stream, and for a
    /// new stream after its last one.
    pub handshake: Duration,
    /// Time that a shutdown waits for connections to close.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request_bytes: 16 << 20,
            names: 200_000,
            name_bytes: 4096,
            unknown_names_bytes: 32 << 20,
            unknown_names_bytes_per_client: 64 << 20,
            response_resources: 500,
            response_bytes: 3 << 20,
            round_bytes: 256 << 10,
            on_demand_secrets: 5_000,
            on_demand_secret_memory: 5_000 * Limits::USUAL_SECRET_MEMORY,
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
            is_temporary: |_| false,
            first_retry: Duration::from_secs(5),
            longest_retry: Duration::from_secs(120),
            answer_within: Duration::from_secs(120),
            keepalive: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            drain: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// The memory in Envoy of an on-demand secret with a usual chain, of 3.5 KiB.
    pub const USUAL_SECRET_MEMORY: usize = 45_000;

    /// Estimates the memory that an on-demand secret of this many bytes takes in Envoy: its TLS
    /// context, and the chain as text, as DER and parsed, with names (measured by
    /// `e2e/inside/tests/xds/envoy/evicted.rs` and `e2e/tests/isolation/cost.rs`).
    pub(crate) fn secret_memory(bytes: usize) -> usize {
        const CONTEXT: usize = 24_000;
        CONTEXT + 6 * bytes
    }
}
