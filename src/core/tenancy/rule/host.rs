//! Hostnames of TenantGateways, and their order.

use std::cmp::Ordering;

use gatewright_objects::domain_order::{ByDomain, from_the_end};
use gatewright_objects::model::{Hostname, ObjectName};

/// A hostname of a TenantGateway. Those of one are ordered from their ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) tenant: ObjectName,
    pub(crate) hostname: Hostname,
}

/// Identifies a [`Host`] with state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HostId(pub(crate) usize);

impl Host {
    pub(crate) fn new(tenant: &ObjectName, hostname: &Hostname) -> Self {
        Self {
            tenant: tenant.clone(),
            hostname: hostname.clone(),
        }
    }

    /// A value that sorts before every hostname of a TenantGateway.
    pub(crate) fn first(tenant: &ObjectName) -> Self {
        Self {
            tenant: tenant.clone(),
            hostname: Hostname::any(),
        }
    }

    pub(crate) fn name(&self) -> ByDomain {
        ByDomain(self.hostname.clone())
    }
}

impl Ord for Host {
    fn cmp(&self, other: &Self) -> Ordering {
        self.tenant
            .cmp(&other.tenant)
            .then_with(|| from_the_end(&self.hostname, &other.hostname))
    }
}

impl PartialOrd for Host {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A shard of a TenantGateway's listeners: the Gateway (0), or a numbered ListenerSet.
pub(crate) type Shard = (ObjectName, usize);
