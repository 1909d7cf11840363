//! The quotas of a namespace as costs, and the messages about what is beyond them.

use gatewright_objects::cost::{Bytes, Cost, Dimension};
use gatewright_objects::limits::NamespaceLimits;

/// The part of a namespace's quota of memory that one object may have: an Envoy takes in an
/// object's part of a route table as a whole, and the others of the namespace have room.
const PART: u64 = 4;
/// The part of it that may be in tables of other namespaces' listeners. Envoy's main thread takes
/// some 3 ms to read a MiB of a table anew, for each change in it.
const SHARED_PART: u64 = 16;

/// What a namespace with these quotas may have.
pub(crate) fn allowance(limits: &NamespaceLimits) -> Cost {
    let envoy = limits.envoy_mib.saturating_mul(1 << 20);
    Cost {
        bytes: Bytes {
            envoy,
            program: limits.program_mib.saturating_mul(1 << 20),
        },
        clusters: limits.clusters,
        filter_chains: limits.filter_chains,
        shared_tables: envoy / SHARED_PART,
        record: limits.record_bytes(),
    }
}

/// Why an object that takes so much is too large for itself, whatever others have.
pub(crate) fn too_large(cost: Cost, allowed: Cost) -> Option<String> {
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
pub(crate) fn beyond(
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
    fn one_object_may_have_a_quarter() {
        let allowed = allowance(&NamespaceLimits::default());
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
