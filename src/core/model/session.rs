//! Session persistence (GEP-1619): how a client says which endpoint it had before.

use std::time::Duration;

/// Where the endpoint of a session stands: in what the client got with an answer and sends with later requests. A client may
/// write what it likes there: an endpoint that the backend does not have counts as none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Session {
    /// In a cookie (RFC 6265).
    Cookie(SessionCookie),
    /// In a header of this lower-case name.
    Header(String),
}

/// The cookie of a session. It is of the one host that is asked: it has no domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionCookie {
    /// Its name.
    pub name: String,
    /// Below which path it is sent.
    pub path: String,
    /// How long it is valid; `None` until the browser ends.
    pub lifetime: Option<Duration>,
    /// Whether it is sent over TLS alone: where it is served over TLS.
    pub secure: bool,
}
