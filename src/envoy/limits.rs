//! Every number of ours in one place. What a listener holds must not change later: a changed listener field drains
//! every connection of that listener.
//!
//! Source: Envoy's edge best practices (`configuration/best_practices/edge`).

/// Buffer per connection, of listeners and clusters.
pub(super) const BUFFER_BYTES: u32 = 32 * 1024;
/// Time for a TLS handshake, the fetch of an on-demand certificate included. Without it an unanswered secret name
/// holds the connection for as long as the client waits.
pub(super) const HANDSHAKE_SECONDS: u64 = 5;
/// Time for a client to send its ClientHello.
pub(super) const CLIENT_HELLO_SECONDS: u64 = 5;
/// Connections a worker takes per wake-up: one, so that a burst spreads over all workers.
pub(super) const ACCEPTS_PER_EVENT: u32 = 1;
/// Time for a client to send its request's headers.
pub(super) const REQUEST_HEADERS_SECONDS: u64 = 10;
/// Time a downstream connection may have no request.
pub(super) const IDLE_SECONDS: u64 = 3600;
/// Time a stream may have no bytes.
pub(super) const STREAM_IDLE_SECONDS: u64 = 300;
/// Largest request headers.
pub(super) const HEADERS_KIB: u32 = 60;
/// Most request headers.
pub(super) const HEADERS_COUNT: u32 = 100;
/// HTTP/2 streams per connection.
pub(super) const STREAMS: u32 = 100;
/// HTTP/2 window of a stream.
pub(super) const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// HTTP/2 window of a connection.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Time to connect to an endpoint.
pub(super) const CONNECT_SECONDS: u64 = 5;
/// Connections to one cluster; Envoy's default of 1,024 is a surprise at the edge, where one cluster may hold every
/// WebSocket there is.
pub(super) const UPSTREAM_CONNECTIONS: u32 = 65_536;
/// Requests in flight, or waiting for a connection, to one cluster.
pub(super) const UPSTREAM_REQUESTS: u32 = 65_536;
/// Retries in flight to one cluster; Envoy's default is 3, which turns a user's retry policy off under load.
pub(super) const UPSTREAM_RETRIES: u32 = 1024;
