//! What namespaces use of their quotas.

use std::collections::BTreeSet;
use std::sync::Arc;

use gatewright_core::cost::Dimension;
use gatewright_core::translate::QuotaUse;
use serde::Serialize;

use super::world::World;

/// What a namespace uses of a quota, where that changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaChange {
    /// The namespace.
    pub namespace: String,
    /// The quota, as in the configuration: `envoyMib`.
    pub quota: &'static str,
    /// What it uses at present, in the unit of the quota.
    pub before: f64,
    /// What it will use.
    pub after: f64,
    /// What it may use.
    pub of: f64,
}

/// Returns what changes, by namespace.
pub(super) fn changes(before: &World, after: &World) -> Vec<QuotaChange> {
    let namespaces: BTreeSet<&Arc<str>> = before.quotas.keys().chain(after.quotas.keys()).collect();
    namespaces
        .into_iter()
        .flat_map(|namespace| {
            Dimension::ALL.into_iter().filter_map(move |dimension| {
                let allowed = after.quotas.get(namespace).or(before.quotas.get(namespace));
                let of = allowed.map_or(0, |of| of.allowed.of(dimension));
                let was = number(dimension, used(before, namespace, dimension));
                let is = number(dimension, used(after, namespace, dimension));
                // What is less than a tenth of the unit is not shown.
                (was.to_bits() != is.to_bits()).then(|| QuotaChange {
                    namespace: namespace.to_string(),
                    quota: option(dimension),
                    before: was,
                    after: is,
                    of: number(dimension, of),
                })
            })
        })
        .collect()
}

fn used(world: &World, namespace: &str, dimension: Dimension) -> u64 {
    let of = world.quotas.get(namespace);
    of.map_or(0, |of: &QuotaUse| of.used.of(dimension))
}

/// The last part of the path of a quota in the configuration.
fn option(dimension: Dimension) -> &'static str {
    let path = dimension.option();
    path.rsplit('.').next().unwrap_or(path)
}

fn number(dimension: Dimension, amount: u64) -> f64 {
    let number = dimension.number(amount);
    number.parse().expect("digits with a point")
}
