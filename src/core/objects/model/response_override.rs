//! Answers in place of errors, as a TrafficPolicy asks for them.

use std::fmt;
use std::sync::Arc;

use super::ObjectName;

/// The overrides of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResponseOverrides {
    /// The policy.
    pub policy: ObjectName,
    /// The overrides, of which the first with the status of a response counts; at least one.
    pub overrides: Vec<ResponseOverride>,
}

/// An answer in place of responses with some statuses.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResponseOverride {
    /// The statuses; at least one range.
    pub statuses: Vec<StatusRange>,
    /// The status in place of that of the response.
    pub status: Option<u16>,
    /// The media type of the body; Envoy's `text/plain` without it.
    pub content_type: Option<String>,
    /// The body.
    pub body: Arc<[u8]>,
}

/// Statuses from the first to the last, 400 to 599; all but 401, whose responses need
/// `WWW-Authenticate` (RFC 9110, 15.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StatusRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

/// A status, or the first and the last.
impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last {
            write!(f, "{first}")
        } else {
            write!(f, "{first}-{last}")
        }
    }
}

/// The body as text, of which a person sees what it is.
impl fmt::Debug for ResponseOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            statuses,
            status,
            content_type,
            body,
        } = self;
        f.debug_struct("ResponseOverride")
            .field("statuses", statuses)
            .field("status", status)
            .field("content_type", content_type)
            .field("body", &String::from_utf8_lossy(body))
            .finish()
    }
}
