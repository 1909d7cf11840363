//! Listeners at which the record of ownership decides who has a hostname.

use std::sync::Arc;

use super::parent::{Parent, ParentListener};
use crate::key::ListenerId;
use gatewright_objects::inputs::{NamespaceRule, RouteHostnames};
use gatewright_objects::ownership::ListenersOf;

/// The ground on which a route claims its hostnames, at a listener where the record decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByRecord {
    /// The listeners among whose routes each hostname has one owner.
    pub(crate) at: Arc<ListenersOf>,
    /// The creation time of the route.
    pub(crate) created: i64,
    /// True if the listener serves the route only under hostnames that its namespace owns.
    pub(crate) decides: bool,
}

impl ByRecord {
    /// The ground on which a route of another namespace claims its hostnames at a listener.
    pub(crate) fn of(parent: &Parent, listener: &ParentListener, created: i64) -> Option<Self> {
        let is_shared = parent.placement.exposure.route_hostnames == Some(RouteHostnames::Shared);
        let decides = is_contended(parent, listener);
        // Of several routes without hostnames the oldest is served, in whatever namespace it is.
        (admits_others(listener) && !is_shared && listener.has_hostnames()).then(|| ByRecord {
            at: parent.listeners_of.clone(),
            created,
            decides,
        })
    }
}

/// True if a listener admits routes of several namespaces.
fn admits_others(listener: &ParentListener) -> bool {
    match &listener.allowed.namespaces {
        NamespaceRule::All | NamespaceRule::Selector(_) => true,
        NamespaceRule::Same | NamespaceRule::None => false,
    }
}

/// True if the record decides which namespace's routes a listener serves under a hostname.
pub(crate) fn is_contended(parent: &Parent, listener: &ParentListener) -> bool {
    admits_others(listener)
        && match parent.placement.exposure.route_hostnames {
            Some(RouteHostnames::Owned) => true,
            Some(RouteHostnames::Shared) => false,
            None => !listener.hostname.is_exact(),
        }
}

/// The listeners among whose admitted namespaces a ListenerSet of another namespace is: there the
/// record decides who has its hostnames.
pub(crate) fn admitted(parent: &Parent) -> Option<&Arc<ListenersOf>> {
    let own = &parent.placement.listeners_of;
    (own.namespace != parent.key.name().namespace).then_some(own)
}

/// A wildcard or catch-all listener below which admitted namespaces may own hostnames.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WideListener {
    /// True if it belongs to an admitted namespace itself.
    pub(crate) is_admitted: bool,
    pub(crate) listener: ListenerId,
}
