//! `requestBody` of a TrafficPolicy: how long bodies of requests may be.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use std::sync::Arc;

use serde::Deserialize;

use super::{Amount, Setting, Uses};
use crate::cost::{Bytes, LIMITED_MATCH, RuleSize};
use crate::inputs::ClassPolicyLimits;

/// The largest limit: 1 TiB.
const MOST_BYTES: u64 = 1 << 40;
/// The filters before a rule.
const REQUEST_BODY: Bytes = Bytes::of(10_000, 200);

/// How long the bodies of a rule's requests may be, and which of them are complete before a backend
/// gets the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestBody {
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenRequestBody {
    max_bytes: i64,
    #[serde(default)]
    buffer: BodyBuffer,
}

impl Setting for RequestBody {
    type Written = WrittenRequestBody;
    type Rules = Self;

    /// A DirectResponse reads no body.
    const USES: Uses = Uses {
        not_on_calls: Some("the messages of a call are one body"),
        on_answers: false,
        is_shared: true,
    };

    fn read(written: WrittenRequestBody, _: &Arc<str>) -> Result<Self, String> {
        let WrittenRequestBody { max_bytes, buffer } = written;
        let bytes = u64::try_from(max_bytes).ok();
        let Some(bytes) = bytes.filter(|bytes| (1..=MOST_BYTES).contains(bytes)) else {
            return Err(format!(
                "requestBody.maxBytes: 1 to {MOST_BYTES} is expected, found {max_bytes}"
            ));
        };
        let most = Self::MOST_BUFFERED;
        if buffer == BodyBuffer::All && bytes > u64::from(most) {
            return Err(format!(
                "requestBody.maxBytes: with buffer All at most {most} is expected, found {bytes}"
            ));
        }
        Ok(Self {
            max_bytes: bytes,
            buffer,
            max_buffered: most,
        })
    }

    fn amounts(&self, limits: &ClassPolicyLimits) -> Vec<Amount> {
        vec![Amount {
            asked: ("requestBody", self.buffered_bytes() as usize),
            limit: ("bufferedBytes", limits.buffered_bytes),
        }]
    }

    fn cost(&self, rule: RuleSize) -> Bytes {
        (LIMITED_MATCH * rule.matches + REQUEST_BODY) * rule.backends
    }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::plain;

    fn read_of(written: Value) -> Result<RequestBody, String> {
        let written = serde_json::from_value(written).map_err(|error| plain(&error.to_string()))?;
        RequestBody::read(written, &Arc::from("a"))
    }

    #[test]
    fn a_limit_collects_bodies_of_unknown_length_by_default() {
        let read = read_of(json!({"maxBytes": 10}));
        let expected = RequestBody {
            max_bytes: 10,
            buffer: BodyBuffer::UnknownLength,
            max_buffered: 1_048_576,
        };
        assert_eq!(read, Ok(expected));
    }

    #[test]
    fn what_cannot_be_carried_out_is_named() {
        for (written, expected) in [
            (json!({}), "maxBytes"),
            (json!({"maxBytes": 0}), "1 to 1099511627776"),
            (json!({"maxBytes": -1}), "found -1"),
            (
                json!({"maxBytes": (1_u64 << 40) + 1}),
                "found 1099511627777",
            ),
            (json!({"maxBytes": 1, "buffer": "Some"}), "unknown value"),
            (
                json!({"maxBytes": 1_048_577, "buffer": "All"}),
                "at most 1048576",
            ),
        ] {
            let text = read_of(written.clone()).expect_err("it is refused");
            assert!(text.contains(expected), "{written}: {text}");
        }
    }
}
