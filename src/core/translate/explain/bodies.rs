//! The changes to bodies of requests and responses of a route.

use super::Explanation;
use crate::model::{Bodies, Compression};

/// Adds the changes, with their policies.
pub(super) fn explain(bodies: &Bodies, explanation: &mut Explanation) {
    let Bodies { compression } = bodies;
    if let Some(compression) = compression {
        explanation.hold("compression", compression_words(compression));
    }
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
