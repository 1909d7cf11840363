//! The hostnames that tenancy grants to a claimant.

use super::{Hostname, ObjectName, Reason};

/// The grant of a route at a parent: no other hostname of the route is served by a TLS listener
/// there.
#[derive(Clone, Debug, PartialEq)]
pub struct HostnameGrant {
    /// The granted hostnames.
    pub granted: Vec<Hostname>,
    /// The Gateway's ListenerSets with listeners for some of them, to which the grant attaches the
    /// route.
    pub sets: Vec<ObjectName>,
    /// True if the Gateway itself has listeners for some of them.
    pub on_gateway: bool,
    /// Why a claim was refused, if one was.
    pub refusal: Option<(Reason, String)>,
}
