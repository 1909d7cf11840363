//! The memory that policies on Gateways, ListenerSets and routes take at a listener, for each
//! hostname that a route has there. Pure.
//!
//! All of it counts for the route, also that of a Gateway's or ListenerSet's policy of another
//! namespace: nobody else decides how many hostnames and matches there are.

use std::collections::BTreeSet;

use crate::key::{ListenerId, RouteKey};
use crate::rule::protocol::Protocol;
use crate::state::attachments::Attachments;
use crate::state::parent::Parent;
use crate::state::policies::place::places;
use crate::state::policies::{AccessAt, Policies};
use gatewright_objects::cost::{self, Bytes, RuleSize};
use gatewright_objects::inputs::Route;
use gatewright_objects::model::BackendId;

impl Policies {
    /// AccessPolicies: Envoy has all of them before each match. On plain HTTP the matches of a rule
    /// share filters. Adds the servers that they send requests to.
    pub(crate) fn access_cost(
        &self,
        parent: &Parent,
        listener: &ListenerId,
        route: &Route,
        servers: &mut BTreeSet<BackendId>,
    ) -> Bytes {
        if self.guard_nothing() || !route.has_requests() {
            return Bytes::default();
        }
        let key = RouteKey::of_route(route);
        let served = parent.listener(&listener.name);
        let is_plain = served.is_some_and(|served| served.protocol == Some(Protocol::Http));
        let all = places(parent, listener, (&key, route));
        all.map(|(rule, place)| match self.access(place) {
            AccessAt::Admit(all) => {
                servers.extend(all.iter().flat_map(|access| access.servers()).cloned());
                cost::guarded(&all, rule.matches.len(), rule.backends.len(), is_plain)
            }
            AccessAt::Closed => Bytes::default(),
        })
        .sum()
    }

    /// TrafficPolicies: each match and each backend may have their filters.
    pub(crate) fn traffic_cost(
        &self,
        parent: &Parent,
        listener: &ListenerId,
        route: &Route,
        attachments: &Attachments,
    ) -> Bytes {
        let key = RouteKey::of_route(route);
        let all = places(parent, listener, (&key, route));
        all.map(|(rule, place)| {
            self.traffic(place, attachments).cost(RuleSize {
                matches: rule.matches.len() as u64,
                backends: rule.backends.len().max(1) as u64,
            })
        })
        .sum()
    }

    /// The regular expressions of TrafficPolicies: each match has them.
    pub(crate) fn traffic_expressions(
        &self,
        parent: &Parent,
        listener: &ListenerId,
        route: &Route,
        attachments: &Attachments,
    ) -> u64 {
        let key = RouteKey::of_route(route);
        let all = places(parent, listener, (&key, route));
        all.map(|(rule, place)| {
            self.traffic(place, attachments).expressions() * rule.matches.len() as u64
        })
        .sum()
    }
}
