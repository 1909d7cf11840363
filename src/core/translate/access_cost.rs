//! The memory that AccessPolicies take. Pure.

use super::attached_policies::{AccessAt, AttachedPolicies, Place};
use super::key::{ListenerId, RouteKey};
use super::parent::Parent;
use super::protocol::Protocol;
use crate::cost::{self, Bytes};
use crate::inputs::Route;

impl AttachedPolicies {
    /// What the AccessPolicies of each rule of a route take at a listener, for each hostname that
    /// the route has there. Envoy has all of them before each match, also those of a Gateway or
    /// ListenerSet of another namespace, and the memory counts for the route: nobody else decides
    /// how many hostnames and matches there are. On plain HTTP the matches of a rule share filters.
    pub(super) fn access_cost(
        &self,
        parent: &Parent,
        listener: &ListenerId,
        route: &Route,
    ) -> Bytes {
        if self.is_empty() || !route.has_requests() {
            return Bytes::default();
        }
        let key = RouteKey::of_route(route);
        let served = parent.listener(&listener.name);
        let is_plain = served.is_some_and(|served| served.protocol == Some(Protocol::Http));
        let each = route.rules.iter().map(|rule| {
            let place = Place {
                gateway: &parent.placement.gateway,
                listener,
                route: &key,
                rule: rule.name.as_deref(),
            };
            match self.access(place) {
                AccessAt::Admit(all) => {
                    cost::guarded(&all, rule.matches.len(), rule.backends.len(), is_plain)
                }
                AccessAt::Closed => Bytes::default(),
            }
        });
        each.sum()
    }
}
