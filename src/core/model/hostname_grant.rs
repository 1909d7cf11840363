//! What tenancy grants a claimant.

use super::{Hostname, ObjectName, Reason};

/// What tenancy grants a route at a parent: no other hostname reaches a TLS listener there.
#[derive(Clone, Debug, PartialEq)]
pub struct HostnameGrant {
    /// The hostnames that it has.
    pub granted: Vec<Hostname>,
    /// ListenerSets of the Gateway where some of them have their listeners; the grant attaches the route there.
    pub sets: Vec<ObjectName>,
    /// Whether the Gateway itself has listeners for some of them.
    pub on_gateway: bool,
    /// Why not everything was granted.
    pub refusal: Option<(Reason, String)>,
}
