//! Every number of ours in one place; those that an operator sets are in [`super::Edge`]. What a listener holds must not
//! change later: a changed listener field drains every connection of that listener.
//!
//! Source: Envoy's edge best practices (`configuration/best_practices/edge`).

/// Buffer per connection, of listeners and clusters.
pub(super) const BUFFER_BYTES: u32 = 32 * 1024;
/// The largest datagram that is passed on, of jumbo frames; Envoy's default drops what is larger than 1,500 bytes, and DNS
/// answers of 4,096 bytes come in fragments that the kernel has put together.
pub(super) const DATAGRAM_BYTES: u64 = 9000;
/// Time for a TLS handshake, the fetch of an on-demand certificate included. Without it an unanswered secret name
/// holds the connection for as long as the client waits.
pub(super) const HANDSHAKE_SECONDS: u64 = 5;
/// Time for a client to send its ClientHello.
pub(super) const CLIENT_HELLO_SECONDS: u64 = 5;
/// Connections a worker takes per wake-up: one, so that a burst spreads over all workers.
pub(super) const ACCEPTS_PER_EVENT: u32 = 1;
/// Time for a client to send its request's headers.
pub(super) const REQUEST_HEADERS_SECONDS: u64 = 10;
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
/// Time that a cluster waits for the certificate that it shows to backends. Other clusters wait for it.
pub(super) const CLIENT_CERTIFICATE_SECONDS: u64 = 2;
/// Time that an authorization server has for its answer.
pub(super) const AUTH_SECONDS: u64 = 5;
/// The largest answer of an authorization server; Envoy's default is 32 MiB for each request.
pub(super) const AUTH_ANSWER_BYTES: u32 = 1024 * 1024;
/// Retries in flight to one cluster; Envoy's default is 3, which turns a user's retry policy off under load.
pub(super) const UPSTREAM_RETRIES: u32 = 1024;
/// The smallest buffers of a stream that Envoy tracks, as a power of two: 32 KiB, one connection's buffer. Under memory
/// pressure it resets the streams that hold the most, in steps of twice as much each.
pub(super) const TRACKED_STREAM_POWER: u32 = 15;
/// Streams of one HTTP/2 connection, reset by the client within [`PREMATURE_RESET_SECONDS`], after which Envoy ends the
/// connection if they are more than half of all. These are Envoy's defaults, said here so that another Envoy has them too.
pub(super) const PREMATURE_RESETS: u32 = 500;
/// A stream that was reset before this age counts as reset prematurely.
pub(super) const PREMATURE_RESET_SECONDS: u32 = 1;
