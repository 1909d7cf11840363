//! Answers that rules give by themselves.

use std::fmt;
use std::sync::Arc;

use super::ObjectName;

/// The answer of a rule without a backend.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The DirectResponse that it is written in.
    pub object: ObjectName,
    /// Its status, 200 to 599.
    pub status: u16,
    /// The media type of the body; Envoy's `text/plain` without it.
    pub content_type: Option<String>,
    /// Names and values of other headers, one of which may occur several times.
    pub headers: Vec<(String, String)>,
    /// The body; empty with a status that has none.
    pub body: Arc<[u8]>,
}

/// The body as text, of which a person sees what it is.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            object,
            status,
            content_type,
            headers,
            body,
        } = self;
        f.debug_struct("Answer")
            .field("object", object)
            .field("status", status)
            .field("content_type", content_type)
            .field("headers", headers)
            .field("body", &String::from_utf8_lossy(body))
            .finish()
    }
}
