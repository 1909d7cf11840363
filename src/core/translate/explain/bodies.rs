//! The changes to bodies of requests and responses of a route.

use super::Explanation;
use crate::model::{Bodies, Compression, ResponseOverride, ResponseOverrides};

/// Adds the changes, with their policies.
pub(super) fn explain(bodies: &Bodies, explanation: &mut Explanation) {
    let Bodies {
        compression,
        overrides,
    } = bodies;
    if let Some(compression) = compression {
        explanation.hold("compression", compression_words(compression));
    }
    if let Some(overrides) = overrides {
        explanation.hold("response override", overrides_words(overrides));
    }
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
