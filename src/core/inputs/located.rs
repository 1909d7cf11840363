//! Pods and nodes: all that is read of them is where they are. Only a cluster has them.

use std::net::IpAddr;

use crate::model::ObjectName;

/// The addresses of a pod that runs, or of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Its name; a node has no namespace.
    pub name: ObjectName,
    /// A pod's `status.podIPs`; the addresses in a node's `status.addresses`. Tenants can write neither.
    pub addresses: Box<[IpAddr]>,
}

impl Located {
    /// Whether an address is one of its own.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address.to_canonical())
    }
}
