//! `requestBody` of a TrafficPolicy.

use super::explained::ExplainedTraffic;
use super::judging::Judging;
use gatewright_objects::model::{ObjectName, Reason};
use gatewright_objects::settings::{BodyBuffer, Judge, Refusal, RequestBody, Visit};

impl Judge<RequestBody> for Judging<'_> {
    /// No body is collected that is larger than allowed.
    fn judge(&mut self, rules: &RequestBody) -> Result<Option<RequestBody>, Refusal> {
        let most = self.limits.buffered_bytes();
        if rules.buffer == BodyBuffer::All && rules.max_bytes > most.into() {
            let text = format!(
                "requestBody.maxBytes: {}, with buffer All limits.object.bufferedBodyKib is {}",
                rules.max_bytes, self.limits.buffered_body_kib
            );
            return Err((Reason::LimitReached, text));
        }
        Ok(Some(RequestBody {
            max_buffered: most,
            ..rules.clone()
        }))
    }
}

impl Visit<RequestBody> for ExplainedTraffic<'_> {
    fn visit(&mut self, policy: &ObjectName, request: &RequestBody) {
        let RequestBody {
            max_bytes,
            buffer,
            max_buffered: _,
        } = request;
        let collected = match buffer {
            BodyBuffer::None => "a body of unknown length has no limit".to_owned(),
            BodyBuffer::UnknownLength => format!(
                "a body of unknown length is collected, up to {} bytes",
                request.buffered_bytes()
            ),
            BodyBuffer::All => {
                "each body is collected before a backend gets the request".to_owned()
            }
        };
        let text = format!("up to {max_bytes} bytes; {collected}");
        self.add("request body", policy, &text);
    }
}
