//! Pods and nodes, of which only the addresses are read. They exist in a cluster only.

use std::net::IpAddr;

use crate::model::ObjectName;

/// The addresses of a running pod, or of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Its name; a node has no namespace.
    pub name: ObjectName,
    /// A pod's `status.podIPs`; the addresses in a node's `status.addresses`. Tenants can write
    /// neither.
    pub addresses: Box<[IpAddr]>,
}

/// A running pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod(pub Located);

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node(pub Located);

impl Located {
    /// True if an address belongs to the pod or node.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address.to_canonical())
    }
}
