//! The Service ports that are the targets of a cluster.

use std::collections::BTreeSet;

use gatewright_objects::model::ServicePort;

/// The targets of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClusterTargets {
    /// One Service port.
    One(ServicePort),
    /// Several Service ports with weights; `None` for an invalid reference.
    Weighted(Vec<(Option<ServicePort>, u32)>),
}

impl ClusterTargets {
    /// The Service ports among the targets.
    pub(crate) fn ports(&self) -> BTreeSet<&ServicePort> {
        match self {
            ClusterTargets::One(port) => BTreeSet::from([port]),
            ClusterTargets::Weighted(shares) => shares
                .iter()
                .filter_map(|(port, _)| port.as_ref())
                .collect(),
        }
    }
}
