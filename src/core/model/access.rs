//! Access: the clients that AccessPolicies admit.

use std::sync::Arc;

use ipnet::IpNet;

use super::ObjectName;

/// What one AccessPolicy asks of every request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The policy.
    pub policy: ObjectName,
    /// The clients by address; `None` if any may send requests.
    pub addresses: Option<AddressList>,
}

/// Clients by their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressList {
    /// The networks of clients that may send requests; empty for all.
    pub allow: Arc<[IpNet]>,
    /// The networks of clients that may not, although they are allowed.
    pub deny: Arc<[IpNet]>,
}

impl AddressList {
    /// The number of networks.
    pub fn len(&self) -> usize {
        self.allow.len() + self.deny.len()
    }

    /// True if it lists no network.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
