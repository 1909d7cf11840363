//! Session persistence (GEP-1619): how requests of a client name their endpoint.

use std::time::Duration;

/// The carrier of a session's endpoint address, which Envoy sets in responses and clients send with
/// later requests. A client may send any address: one that is no endpoint of the backend is
/// ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Session {
    /// In a cookie (RFC 6265).
    Cookie(SessionCookie),
    /// In a header of this lower-case name.
    Header(String),
}

/// The cookie of a session. It is valid for the requested host only: it has no domain attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionCookie {
    /// Its name.
    pub name: String,
    /// The path below which it is sent.
    pub path: String,
    /// Its lifetime; `None` for a session cookie, which the browser drops when it ends.
    pub lifetime: Option<Duration>,
    /// True if it has the attribute Secure: set if the host is served over TLS.
    pub secure: bool,
}
