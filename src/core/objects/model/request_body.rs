//! The bodies of requests that a TrafficPolicy lets pass.

use serde::Deserialize;

use super::ObjectName;

/// How long the bodies of a rule's requests may be, and which of them are complete before a backend
/// gets the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestBody {
    /// The policy.
    pub policy: ObjectName,
    /// The most bytes; a request with more is answered 413.
    pub max_bytes: u64,
    /// The bodies that Envoy collects.
    pub buffer: BodyBuffer,
    /// The most bytes that Envoy may collect of a request.
    pub max_buffered: u32,
}

/// The bodies that Envoy collects before a backend gets the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum BodyBuffer {
    /// None: a body whose length is not known at its beginning has no limit.
    None,
    /// Those whose length is not known at their beginning.
    #[default]
    UnknownLength,
    /// All.
    All,
}

impl RequestBody {
    /// The most bytes that Envoy collects of a request, whatever is allowed.
    pub const MOST_BUFFERED: u32 = 1024 * 1024;

    /// The bytes of a request that Envoy collects; 0 if it collects none.
    pub fn buffered_bytes(&self) -> u32 {
        match self.buffer {
            BodyBuffer::None => 0,
            BodyBuffer::UnknownLength | BodyBuffer::All => {
                let bytes = u32::try_from(self.max_bytes);
                bytes.map_or(self.max_buffered, |bytes| bytes.min(self.max_buffered))
            }
        }
    }
}
