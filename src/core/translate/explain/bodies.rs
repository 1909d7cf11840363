//! The changes to bodies of requests and responses of a route.

use super::Explanation;
use gatewright_objects::model::{
    Bodies, BodyBuffer, Compression, RequestBody, ResponseOverride, ResponseOverrides,
};

/// Adds the changes, with their policies.
pub(super) fn explain(bodies: &Bodies, explanation: &mut Explanation) {
    let Bodies {
        compression,
        overrides,
        request,
    } = bodies;
    if let Some(compression) = compression {
        explanation.hold("compression", compression_words(compression));
    }
    if let Some(overrides) = overrides {
        explanation.hold("response override", overrides_words(overrides));
    }
    if let Some(request) = request {
        explanation.hold("request body", request_words(request));
    }
}

fn request_words(request: &RequestBody) -> String {
    let RequestBody {
        policy,
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
        BodyBuffer::All => "each body is collected before a backend gets the request".to_owned(),
    };
    format!("TrafficPolicy {policy}: up to {max_bytes} bytes; {collected}")
}

fn overrides_words(overrides: &ResponseOverrides) -> String {
    let ResponseOverrides { policy, overrides } = overrides;
    let all: Vec<String> = overrides.iter().map(override_words).collect();
    format!("TrafficPolicy {policy}: {}", all.join("; "))
}

fn override_words(one: &ResponseOverride) -> String {
    let ResponseOverride {
        statuses,
        status,
        content_type,
        body,
    } = one;
    let statuses: Vec<String> = statuses.iter().map(ToString::to_string).collect();
    let answered = status.map_or(String::new(), |status| format!(" as {status}"));
    format!(
        "{}{answered} with {} bytes of {}",
        statuses.join(", "),
        body.len(),
        content_type.as_deref().unwrap_or("text/plain")
    )
}

fn compression_words(compression: &Compression) -> String {
    let Compression {
        policy,
        types,
        min_bytes,
        algorithms,
    } = compression;
    let algorithms: Vec<String> = algorithms.iter().map(|one| format!("{one:?}")).collect();
    format!(
        "TrafficPolicy {policy}: {} from {min_bytes} bytes on, for {}",
        algorithms.join(" or "),
        types.join(", ")
    )
}
