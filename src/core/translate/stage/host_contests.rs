//! Contests for the hostnames of routes: what answers for a hostname in place of a route that is
//! attached with it, or beside it.
//!
//! In: attachments, the listeners that have hostnames, and the record of ownership. Out: a
//! [`Contest`] for a route and a hostname, and marks on the statuses of the routes that have one.
//! Its words are in `hostname_condition.rs`.
//!
//! A wildcard or catch-all route serves what no narrower hostname has. So it is told of listeners
//! of other namespaces below it only if it is of the Gateway's namespace, which admits them, and of
//! the first ones only.
//!
//! A listener that has no hostname at all says so in its own status: it is not told again at each
//! of its routes.

use std::collections::BTreeSet;

use super::admission::Admission;
use super::compile::Units;
use super::routes::Routing;
use super::solver::solves;
use crate::key::{ListenerId, RouteKey};
use crate::rule::protocol::Protocol;
use crate::state::by_record::admitted;
use crate::state::dirty::Dirty;
use crate::state::frontend_state::FrontendState;
use crate::state::frontends::Frontends;
use crate::state::parent::Parent;
use gatewright_objects::domain_order::from_the_end;
use gatewright_objects::inputs::RouteHostnames;
use gatewright_objects::model::{FrontendId, Hostname, ObjectName};

/// What answers for a hostname of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contest<'a> {
    /// Another listener has the hostname, by a narrower one or by precedence, and the route is not
    /// attached there.
    Listener(&'a ListenerId),
    /// The hostname belongs to another namespace than the wider one of the listener, which does not
    /// serve it.
    Kept,
    /// Another route gets all connections.
    Connections(&'a RouteKey),
    /// A route of another namespace answers as well.
    Shared(&'a RouteKey),
}

/// The number of hostnames that a text has.
pub(crate) const NAMED: usize = 4;

/// The states by which contests are decided.
#[derive(Clone, Copy)]
pub(crate) struct HostContests<'a> {
    pub(crate) routing: Routing<'a>,
    pub(crate) frontends: &'a Frontends,
}

impl<'a> HostContests<'a> {
    /// What answers in place of a route, or beside it, for a hostname that it contributes to a
    /// listener of a frontend.
    pub(crate) fn of(
        self,
        key: &'a RouteKey,
        id: &FrontendId,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> Option<Contest<'a>> {
        let frontend = self.frontends.get(id)?;
        let claims = frontend.claims();
        claims
            .over(hostname)
            .find(|claim| claim.listener == *listener)?;
        let (own, owner, protocol) = frontend.owner(hostname)?;
        if owner != listener {
            let admission = self.routing.admission;
            let mut there = admission.attachments.contributors(hostname, owner);
            let is_there =
                there.any(|(route, _)| route == key) && admission.is_served(owner, hostname, key);
            return (!is_there).then_some(Contest::Listener(owner));
        }
        if own != hostname && self.is_kept(id, hostname, owner) {
            return Some(Contest::Kept);
        }
        match protocol {
            Protocol::Http | Protocol::Https => self.shared(key, hostname, listener),
            Protocol::TlsTerminate | Protocol::TlsPassthrough | Protocol::Tcp | Protocol::Udp => {
                self.connections(key, hostname, listener)
            }
        }
    }

    /// True if the hostname belongs to another namespace than the wider one of a listener.
    fn is_kept(self, id: &FrontendId, hostname: &Hostname, listener: &ListenerId) -> bool {
        let admission = self.routing.admission;
        admission.is_of_another(id, hostname, listener)
            || admission.is_of_another_admitted(hostname, listener)
    }

    /// The first route of another namespace that answers requests as well, where nobody said that
    /// this is meant.
    fn shared(
        self,
        key: &'a RouteKey,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> Option<Contest<'a>> {
        let parent = self.parent(listener)?;
        if parent.placement.exposure.route_hostnames == Some(RouteHostnames::Shared)
            || solves(key, self.routing.store)
        {
            return None;
        }
        let namespace = &*key.name.namespace;
        let attachments = self.routing.admission.attachments;
        let answers = |route: &RouteKey| {
            self.takes_requests(route)
                && self.routing.admission.is_served(listener, hostname, route)
                && !solves(route, self.routing.store)
        };
        let mut others = attachments.first_of_others((hostname, listener), namespace, answers);
        others.next().map(Contest::Shared)
    }

    /// The route that gets all connections of a hostname in place of another.
    fn connections(
        self,
        key: &RouteKey,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> Option<Contest<'a>> {
        let best = self.routing.best_route(hostname, listener, None)?;
        if best == *key || !self.takes_requests(key) {
            return None;
        }
        let mut routes = self
            .routing
            .admission
            .attachments
            .contributors(hostname, listener);
        let (best, _) = routes.find(|(route, _)| *route == best)?;
        Some(Contest::Connections(best))
    }

    /// The hostnames below one of a route that listeners of other namespaces have, which the
    /// Gateway admits: the first ones, and whether there are more.
    pub(crate) fn guests(
        self,
        key: &RouteKey,
        parent: &Parent,
        id: &FrontendId,
        hostname: &Hostname,
    ) -> (Vec<(&'a Hostname, &'a ListenerId)>, bool) {
        let gateway = &parent.placement.gateway;
        let frontend = self
            .frontends
            .get(id)
            .filter(|_| key.name.namespace == gateway.namespace);
        let attachments = self.routing.admission.attachments;
        let mut names: Vec<(&Hostname, &ListenerId)> = Vec::new();
        let below = frontend.into_iter().flat_map(|frontend| {
            let names = frontend.guests().below(gateway, hostname).take(NAMED + 1);
            names.filter_map(move |name| Some((name, &frontend.winner(name)?.0)))
        });
        names.extend(below);
        let has_more = names.len() > NAMED;
        names.truncate(NAMED);
        names.retain(|(name, listener)| {
            let mut routes = attachments.contributors(name, listener);
            !routes.any(|(route, _)| route == key)
        });
        (names, has_more)
    }

    fn takes_requests(self, key: &RouteKey) -> bool {
        let resolution = self.routing.resolutions.get(key);
        resolution.is_some_and(|resolution| resolution.takes_requests(key.kind))
    }

    fn parent(self, listener: &ListenerId) -> Option<&'a Parent> {
        self.routing.admission.parents.get(&listener.parent)
    }

    /// The routes that contribute a hostname to listeners of a frontend.
    fn contributors(
        self,
        id: &FrontendId,
        hostname: &Hostname,
    ) -> BTreeSet<(&'a RouteKey, &'a ListenerId)> {
        let Some(frontend) = self.frontends.get(id) else {
            return BTreeSet::new();
        };
        let attachments = self.routing.admission.attachments;
        let listeners = frontend
            .claims()
            .over(hostname)
            .map(|claim| &claim.listener);
        listeners
            .flat_map(|listener| {
                let routes = attachments.contributors(hostname, listener);
                routes.map(move |(route, _)| (route, listener))
            })
            .collect()
    }

    /// True if a route does not serve a hostname alone that it contributes to listeners of a
    /// frontend. Of routes of one namespace and kind at one listener one stands for all.
    pub(crate) fn is_contested(self, id: &FrontendId, hostname: &Hostname) -> bool {
        let Some(frontend) = self.frontends.get(id) else {
            return false;
        };
        let attachments = self.routing.admission.attachments;
        let owner = frontend.owner(hostname).map(|(_, owner, _)| owner);
        frontend.claims().over(hostname).any(|claim| {
            let listener = &claim.listener;
            let mut routes = attachments.contributors(hostname, listener);
            let Some((first, _)) = routes.next() else {
                return false;
            };
            let is_elsewhere = owner.is_some_and(|owner| owner != listener);
            let has_requests = matches!(claim.protocol, Protocol::Http | Protocol::Https);
            let is_alone = routes.next().is_none();
            if is_elsewhere || !has_requests && !is_alone {
                return true;
            }
            let namespace = &*first.name.namespace;
            let mut others = attachments.first_of_others((hostname, listener), namespace, |_| true);
            self.of(first, id, hostname, listener).is_some() || others.next().is_some()
        })
    }

    /// Marks the statuses of the routes that contribute a hostname to listeners of a frontend.
    pub(crate) fn touch(self, id: &FrontendId, hostname: &Hostname, dirty: &mut Dirty) {
        let routes = self.contributors(id, hostname).into_iter();
        dirty
            .statuses
            .extend(routes.map(|(route, _)| route.object()));
    }
}

/// Notes whether the listener that has a hostname is admitted from another namespace, and marks the
/// statuses of the routes that are told of it.
pub(crate) fn note_guest(
    admission: Admission<'_>,
    frontend: &mut FrontendState,
    hostname: &Hostname,
    listener: Option<&ListenerId>,
    dirty: &mut Dirty,
) {
    let parent = listener.and_then(|listener| admission.parents.get(&listener.parent));
    let admits = parent.filter(|parent| admitted(parent).is_some());
    let gateway = admits.map(|parent| parent.placement.gateway.clone());
    for gateway in frontend.guests_mut().set(hostname, gateway) {
        touch_hosts(admission, frontend, &gateway, hostname, dirty);
    }
}

/// Marks the statuses of the routes of a Gateway's namespace that are told of a hostname below one
/// of theirs, if it is among the first.
fn touch_hosts(
    admission: Admission<'_>,
    frontend: &FrontendState,
    gateway: &ObjectName,
    hostname: &Hostname,
    dirty: &mut Dirty,
) {
    let any = (!hostname.is_any()).then(Hostname::any);
    for wide in hostname.covering().chain(any) {
        let mut last = frontend.guests().below(gateway, &wide).skip(NAMED);
        let is_told = last
            .next()
            .is_none_or(|last| from_the_end(hostname, last).is_le());
        if !is_told {
            continue;
        }
        for claim in frontend.claims().over(hostname) {
            let routes = admission.attachments.contributors(&wide, &claim.listener);
            let own = routes.filter(|(route, _)| route.name.namespace == gateway.namespace);
            dirty.statuses.extend(own.map(|(route, _)| route.object()));
        }
    }
}
impl Units<'_> {
    /// Notes whether something else answers for a hostname of routes, and marks their statuses if
    /// it does or did.
    pub(super) fn note_contest(&mut self, id: &FrontendId, hostname: &Hostname, dirty: &mut Dirty) {
        let is_contested = self.contests().is_contested(id, hostname);
        let is_told = self
            .frontends
            .get_mut(id)
            .is_some_and(|frontend| frontend.set_contested(hostname, is_contested));
        if is_told {
            self.contests().touch(id, hostname, dirty);
        }
    }

    fn contests(&self) -> HostContests<'_> {
        HostContests {
            routing: self.routing,
            frontends: self.frontends,
        }
    }
}
