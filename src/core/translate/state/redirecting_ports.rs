//! The ports of plain HTTP on which hosts of HTTPS listeners are redirected.

use std::collections::BTreeSet;

use super::parent::Parent;
use super::parents::Parents;
use crate::key::ParentKey;
use crate::rule::protocol::Protocol;
use gatewright_objects::inputs::PlainHttp;

/// True if the Gateway of a parent redirects plain HTTP.
pub(crate) fn redirects(parent: &Parent) -> bool {
    parent.placement.exposure.plain_http == Some(PlainHttp::Redirect)
}

/// The ports of a parent's own listeners for plain HTTP, if its Gateway redirects that.
pub(crate) fn own_ports(parent: &Parent) -> BTreeSet<u16> {
    let plain = parent
        .listeners
        .iter()
        .filter(|listener| listener.protocol == Some(Protocol::Http));
    plain
        .filter(|_| redirects(parent))
        .map(|listener| listener.port)
        .collect()
}

/// The number of ports that have a redirect for each hostname of a parent's HTTPS listeners: those
/// of its Gateway and its own. Other ListenerSets of the Gateway redirect none of its hosts.
pub(crate) fn count(parent: &Parent, parents: &Parents) -> u64 {
    let gateway = ParentKey::Gateway(parent.placement.gateway.clone());
    let of_gateway = parents.get(&gateway).map(own_ports).unwrap_or_default();
    own_ports(parent).union(&of_gateway).count() as u64
}
