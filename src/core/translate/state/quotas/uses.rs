//! What namespaces use of their quotas.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::register::Register;
use super::Quotas;
use gatewright_objects::cost::{Cost, Dimension};
use gatewright_objects::inputs::ObjectKey;

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

impl Quotas {
    /// What the objects of each namespace take that are within its quotas, and what it may have.
    pub(crate) fn uses(&self, register: &Register) -> Vec<QuotaUse> {
        let namespaces: BTreeSet<_> = self
            .routes
            .namespaces()
            .chain(self.parents.namespaces())
            .collect();
        namespaces
            .into_iter()
            .map(|namespace| QuotaUse {
                namespace: namespace.clone(),
                used: Cost {
                    record: register.used_by(namespace),
                    ..self.routes.used(namespace) + self.parents.used(namespace)
                },
                allowed: self.allowed(namespace),
            })
            .collect()
    }

    /// What each object of a namespace takes in a dimension, within the quotas.
    pub(crate) fn costs(
        &self,
        namespace: &str,
        dimension: Dimension,
    ) -> impl Iterator<Item = (ObjectKey, u64)> {
        let parents = self.parents.costs(namespace, dimension);
        let routes = self.routes.costs(namespace, dimension);
        let parents = parents.map(|(key, cost)| (key.object(), cost));
        parents.chain(routes.map(|(key, cost)| (key.object(), cost)))
    }
}
