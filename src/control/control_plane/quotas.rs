//! What namespaces take of their quotas, as JSON. Pure.

use std::cmp::Reverse;

use serde_json::{Map, Value, json};

use gatewright_core::cost::Dimension;
use gatewright_core::translate::QuotaUse;

/// Returns the use of each namespace, the fullest first.
pub(super) fn document(mut uses: Vec<QuotaUse>) -> Value {
    uses.sort_by_key(|of| (Reverse(of.fullness()), of.namespace.clone()));
    uses.iter().map(of_namespace).collect()
}

fn of_namespace(of: &QuotaUse) -> Value {
    let quotas: Map<String, Value> = Dimension::ALL
        .into_iter()
        .map(|dimension| {
            let (used, limit) = (of.used.of(dimension), of.allowed.of(dimension));
            (
                dimension.name().to_owned(),
                json!({"used": used, "limit": limit}),
            )
        })
        .collect();
    json!({"namespace": &*of.namespace, "quotas": quotas})
}
