//! What namespaces use of their quotas.

use std::sync::Arc;

use crate::cost::{Cost, Dimension};

/// What a namespace takes of its quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUse {
    /// The namespace.
    pub namespace: Arc<str>,
    /// What its objects take that are within the quotas.
    pub used: Cost,
    /// The quotas of the namespace.
    pub allowed: Cost,
}

impl QuotaUse {
    /// The part of the quota that is used in a dimension, in thousandths.
    pub fn part(&self, dimension: Dimension) -> u64 {
        self.used.of(dimension).saturating_mul(1000) / self.allowed.of(dimension).max(1)
    }

    /// The same in the dimension where most of it is used.
    pub fn fullness(&self) -> u64 {
        let parts = Dimension::ALL.map(|dimension| self.part(dimension));
        parts.into_iter().max().unwrap_or_default()
    }
}
