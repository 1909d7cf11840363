//! The Service ports to which a cluster leads.

use std::collections::BTreeSet;

use crate::model::ServicePort;

/// The Service ports to which a cluster leads.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lead {
    /// To one Service port.
    One(ServicePort),
    /// To several with their weights, and with what is invalid among them.
    Shares(Vec<(Option<ServicePort>, u32)>),
}

impl Lead {
    /// The Service ports that it leads to.
    pub(super) fn ports(&self) -> BTreeSet<&ServicePort> {
        match self {
            Lead::One(port) => BTreeSet::from([port]),
            Lead::Shares(shares) => shares.iter().filter_map(|(port, _)| port.as_ref()).collect(),
        }
    }
}
