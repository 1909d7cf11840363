//! All our constant limits; those that an operator sets are in [`super::Edge`]. Limits in a
//! Listener must never change: a changed field of a Listener drains all its connections.
//!
//! Source: Envoy's edge best practices (`configuration/best_practices/edge`).

/// Buffer limit per connection, of listeners and clusters.
pub(super) const BUFFER_BYTES: u32 = 32 * 1024;
/// The largest datagram that is forwarded, that of jumbo frames; Envoy's default drops datagrams
/// above 1,500 bytes, and DNS responses of 4,096 bytes arrive in fragments that the kernel
/// reassembles.
pub(super) const DATAGRAM_BYTES: u64 = 9000;
/// Timeout of a TLS handshake, including the fetch of an on-demand certificate. Without it a secret
/// name without a response would hold the connection for as long as the client waits.
pub(super) const HANDSHAKE_SECONDS: u64 = 5;
/// Timeout for a client's ClientHello.
pub(super) const CLIENT_HELLO_SECONDS: u64 = 5;
/// The most connections that a worker accepts per wake-up: one, so that a burst spreads over all
/// workers.
pub(super) const ACCEPTS_PER_EVENT: u32 = 1;
/// Timeout for a client's request headers.
pub(super) const REQUEST_HEADERS_SECONDS: u64 = 10;
/// The time for a client to read an answer after which Envoy closes the connection. Envoy's default
/// of a second loses the answer of a refused upload for clients who are not that fast.
pub(super) const DELAYED_CLOSE_SECONDS: u64 = 5;
/// The idle timeout of a stream.
pub(super) const STREAM_IDLE_SECONDS: u64 = 300;
/// The largest size of request headers.
pub(super) const HEADERS_KIB: u32 = 60;
/// The largest number of header fields of a request, and of a response of a backend. Browsers send
/// a field for each cookie by HTTP/2 and HTTP/3 (RFC 9113, 8.2.3), and Chromium keeps up to 180
/// cookies of a domain.
pub(super) const HEADERS_COUNT: u32 = 256;
/// The most concurrent HTTP/2 streams per connection.
pub(super) const STREAMS: u32 = 100;
/// The window of a client's stream, of HTTP/2 and HTTP/3: an upload has no more than this on its
/// way for each round trip. Envoy buffers as much of a response for a client that does not read it.
pub(super) const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// The window of a client's connection, of HTTP/2 and HTTP/3: what one client can have sent and no
/// backend has taken. A stream that a slow backend holds up leaves another one its window.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 2 * STREAM_WINDOW_BYTES;
/// The HTTP/2 window of a stream of a backend: a download has no more than this on its way.
pub(super) const BACKEND_STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// The HTTP/2 window of a backend's connection, on which the requests of many clients are: that of
/// all its streams, so that clients who do not read keep none of the others waiting.
pub(super) const BACKEND_CONNECTION_WINDOW_BYTES: u32 = STREAMS * BACKEND_STREAM_WINDOW_BYTES;
/// Timeout of a connection to an endpoint.
pub(super) const CONNECT_SECONDS: u64 = 5;
/// The initial fetch timeout of a cluster's client certificate. Other clusters wait for it.
pub(super) const CLIENT_CERTIFICATE_SECONDS: u64 = 2;
/// The largest response of an authorization server, of the keys of an issuer, and of a token
/// endpoint; Envoy's default is 32 MiB for each request.
pub(super) const AUTH_ANSWER_BYTES: u32 = 64 * 1024;
/// The most bytes of a key set that Envoys fetch, of which providers may publish certificates as
/// well, and the most keys.
pub(super) const KEY_SET_BYTES: u32 = 32 * 1024;
pub(super) const KEYS: u128 = 16;
/// The most requests of a worker to the token endpoint of a provider, a second and at once.
pub(super) const LOGINS_PER_SECOND: u32 = 50;
pub(super) const LOGINS_AT_ONCE: u32 = 100;
/// Timeout of a batch that goes to a collector; its lines or spans are lost then.
pub(super) const EXPORT_SECONDS: u64 = 5;
/// The most batches on their way to a collector; lines and spans beyond are lost.
pub(super) const EXPORT_BATCHES: u32 = 256;
/// The size of a batch of lines that goes to a collector.
pub(super) const EXPORT_BYTES: u32 = 16 * 1024;
/// The most concurrent retries to one cluster; Envoy's default is 3, which disables a user's retry
/// policy under load.
pub(super) const UPSTREAM_RETRIES: u32 = 1024;
/// The smallest buffers of a stream that Envoy tracks, as a power of two: 32 KiB, one connection's
/// buffer. Under memory pressure it resets the streams with the largest buffers, in classes that
/// each double the size.
pub(super) const TRACKED_STREAM_POWER: u32 = 15;
/// Streams of one HTTP/2 connection, reset by the client within [`PREMATURE_RESET_SECONDS`], after
/// which Envoy closes the connection if they are more than half of all. These are Envoy's defaults,
/// explicit so that every version has them.
pub(super) const PREMATURE_RESETS: u32 = 500;
/// A stream that is reset before this age counts as reset prematurely.
pub(super) const PREMATURE_RESET_SECONDS: u32 = 1;
