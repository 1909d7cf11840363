//! Listeners at which the record of ownership decides who has a hostname.

use std::sync::Arc;

use super::parent::{Parent, ParentListener};
use crate::key::ListenerId;
use gatewright_objects::inputs::{NamespaceRule, Route, RouteHostnames};
use gatewright_objects::model::Hostname;
use gatewright_objects::ownership::ListenersOf;

/// The ground on which a route claims its hostnames, at a listener where the record decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByRecord {
    /// The listeners among whose routes each hostname has one owner.
    pub(crate) at: Arc<ListenersOf>,
    /// The creation time of the route.
    pub(crate) created: i64,
    /// The effect of the record at the listener.
    pub(crate) effect: RecordEffect,
}

/// What the record decides about a route at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RecordEffect {
    /// It is served only under hostnames that its namespace owns.
    Decides,
    /// It is served all the same: several namespaces share the hostname.
    Claims,
    /// It is served all the same, since it is of the Gateway's own namespace, which keeps the exact
    /// hostnames that it has first from those that it admits.
    ClaimsExact,
}

impl ByRecord {
    /// The ground on which a route of another namespace claims its hostnames at a listener.
    pub(crate) fn of(parent: &Parent, listener: &ParentListener, created: i64) -> Option<Self> {
        let is_shared = parent.placement.exposure.route_hostnames == Some(RouteHostnames::Shared);
        let effect = if is_contended(parent, listener) {
            RecordEffect::Decides
        } else {
            RecordEffect::Claims
        };
        // Of several routes without hostnames the oldest is served, in whatever namespace it is.
        (admits_others(listener) && !is_shared && listener.has_hostnames()).then(|| ByRecord {
            at: parent.listeners_of.clone(),
            created,
            effect,
        })
    }

    /// The ground on which a route of the namespace of a Gateway that admits others claims its
    /// hostnames at a listener.
    pub(crate) fn of_owner(
        parent: &Parent,
        listener: &ParentListener,
        route: &Route,
    ) -> Option<Self> {
        let admits = is_selective(&parent.placement.admits) || admits_others(listener);
        // A redirect, or an answer to a challenge, is no application of its own.
        let forwards = route.rules.iter().any(|rule| !rule.backends.is_empty());
        let is_application = forwards && !route.challenge;
        let claims =
            admits && is_application && admitted(parent).is_none() && listener.has_hostnames();
        claims.then(|| ByRecord {
            at: parent.placement.listeners_of.clone(),
            created: route.meta.created,
            effect: RecordEffect::ClaimsExact,
        })
    }

    /// True if a hostname is claimed on this ground.
    pub(crate) fn claims(&self, hostname: &Hostname) -> bool {
        self.effect != RecordEffect::ClaimsExact || hostname.is_exact()
    }
}

/// True if a listener admits routes of several namespaces.
fn admits_others(listener: &ParentListener) -> bool {
    is_selective(&listener.allowed.namespaces)
}

/// True if a rule admits other namespaces than the own one.
fn is_selective(rule: &NamespaceRule) -> bool {
    match rule {
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
