//! What a namespace may have: as much as every namespace, or what labels say that the platform gave
//! it.

use std::collections::BTreeMap;

use crate::cost::{Bytes, Cost, Dimension};
use crate::limits::Limits;
use crate::record_quota::record_bytes;

/// The part of a namespace's quota of memory that one object may have: an Envoy takes in an
/// object's part of a route table as a whole, and the others of the namespace have room.
const PART: u64 = 4;

/// What a namespace with these labels may have. A label that is no number has no effect.
pub(super) fn allowance(limits: &Limits, labels: &BTreeMap<String, String>) -> Cost {
    let number = |dimension: Dimension, of_all| dimension.labelled(labels).unwrap_or(of_all);
    let bytes = |dimension, of_all| number(dimension, of_all).saturating_mul(1 << 20);
    Cost {
        bytes: Bytes {
            envoy: bytes(Dimension::Envoy, limits.max_envoy_mib_per_namespace),
            program: bytes(Dimension::Program, limits.max_program_mib_per_namespace),
        },
        clusters: number(Dimension::Clusters, limits.max_clusters_per_namespace),
        filter_chains: number(
            Dimension::FilterChains,
            limits.max_filter_chains_per_namespace,
        ),
        record: record_bytes(labels, limits.record_bytes()),
    }
}

/// Why an object that takes so much is too large for itself, whatever others have.
pub(super) fn too_large(cost: Cost, allowed: Cost) -> Option<String> {
    let parts = [Dimension::Envoy, Dimension::Program].into_iter();
    let mut beyond = parts.filter(|dimension| cost.of(*dimension) > allowed.of(*dimension) / PART);
    beyond.next().map(|dimension| {
        let found = dimension.amount(cost.of(dimension));
        let most = dimension.amount(allowed.of(dimension) / PART);
        format!(
            "it needs {found}, one object may need {most}, a quarter of {}: {}",
            dimension.option(),
            dimension.advice()
        )
    })
}

/// What an object needs of a quota that is used up, as the end of a message that names the older
/// objects.
pub(super) fn beyond(
    dimensions: impl Iterator<Item = Dimension>,
    cost: Cost,
    allowed: Cost,
) -> String {
    let texts = dimensions.map(|dimension| {
        let option = dimension.option();
        let most = dimension.amount(allowed.of(dimension));
        let found = cost.of(dimension);
        format!(
            "{option}, {most}, this one needs {}: {}",
            dimension.amount(found),
            dimension.advice()
        )
    });
    texts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_a_namespace_replace_the_quotas_of_all() {
        let labels =
            |text: &str| BTreeMap::from([(Dimension::Envoy.label().to_owned(), text.to_owned())]);
        let of_all = allowance(&Limits::default(), &BTreeMap::new());
        assert_eq!(of_all.bytes.envoy, 256 << 20);
        assert_eq!(
            allowance(&Limits::default(), &labels("512")).bytes.envoy,
            512 << 20
        );
        assert_eq!(
            allowance(&Limits::default(), &labels("512")).clusters,
            of_all.clusters
        );
        assert_eq!(
            allowance(&Limits::default(), &labels("much")),
            of_all,
            "no number"
        );
    }

    #[test]
    fn one_object_may_have_a_quarter() {
        let allowed = allowance(&Limits::default(), &BTreeMap::new());
        let cost = |envoy| Cost {
            bytes: Bytes { envoy, program: 0 },
            ..Cost::default()
        };
        assert_eq!(too_large(cost(64 << 20), allowed), None);
        let text = too_large(cost((64 << 20) + 1), allowed).expect("a byte too many");
        assert!(
            text.starts_with("it needs 64.1 MiB of an Envoy's memory, one object may need 64 MiB"),
            "{text}"
        );
    }
}
