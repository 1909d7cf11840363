//! The field `requestBody` of a TrafficPolicy.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use serde::Deserialize;

use crate::model::{BodyBuffer, RequestBody};

/// The largest limit: 1 TiB.
const MOST_BYTES: u64 = 1 << 40;

/// How long bodies of requests may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBodyRules {
    /// The most bytes.
    pub max_bytes: u64,
    /// The bodies that Envoy collects.
    pub buffer: BodyBuffer,
}

/// `spec.requestBody`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WrittenRequestBody {
    max_bytes: i64,
    #[serde(default)]
    buffer: BodyBuffer,
}

/// The limit as written.
///
/// # Errors
/// The field that cannot be carried out, and why.
pub(super) fn read(written: &WrittenRequestBody) -> Result<RequestBodyRules, String> {
    let WrittenRequestBody { max_bytes, buffer } = *written;
    let bytes = u64::try_from(max_bytes).ok();
    let Some(bytes) = bytes.filter(|bytes| (1..=MOST_BYTES).contains(bytes)) else {
        return Err(format!(
            "requestBody.maxBytes: 1 to {MOST_BYTES} is expected, found {max_bytes}"
        ));
    };
    let most = RequestBody::MOST_BUFFERED;
    if buffer == BodyBuffer::All && bytes > u64::from(most) {
        return Err(format!(
            "requestBody.maxBytes: with buffer All at most {most} is expected, found {bytes}"
        ));
    }
    Ok(RequestBodyRules {
        max_bytes: bytes,
        buffer,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::plain;

    fn read_of(written: Value) -> Result<RequestBodyRules, String> {
        let written = serde_json::from_value(written).map_err(|error| plain(&error.to_string()))?;
        read(&written)
    }

    #[test]
    fn a_limit_collects_bodies_of_unknown_length_by_default() {
        let read = read_of(json!({"maxBytes": 10}));
        let expected = RequestBodyRules {
            max_bytes: 10,
            buffer: BodyBuffer::UnknownLength,
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
