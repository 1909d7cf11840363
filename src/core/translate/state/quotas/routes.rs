//! The costs of routes.

use std::collections::BTreeSet;

use super::super::attachments::Attachments;
use super::super::charge::{Charge, Charged, ChargedCluster, Charging, Matching, parts};
use super::super::dirty::Dirty;
use super::super::parents::Parents;
use super::super::policies::Policies;
use super::super::resolutions::Resolved;
use super::Quotas;
use crate::key::RouteKey;
use crate::rule::allowance::too_large;
use gatewright_objects::quota::Member;
use gatewright_objects::store::Store;

impl Quotas {
    /// Counts a route where it is attached. One that is too large for itself is not served, and
    /// leaves room for the others.
    pub(crate) fn charge(
        &mut self,
        key: &RouteKey,
        (parents, attachments): (&Parents, &Attachments),
        store: &Store,
        policies: &Policies,
        dirty: &mut Dirty,
    ) {
        let charging = Charging {
            parents,
            attachments,
            policies,
            store,
            endpoints: &self.endpoints,
        };
        let route = store.route(key);
        let new = route.map(|route| charging.route(key, route));
        let hostnames = new.as_ref().map_or(0, |_| attachments.hostnames(key));
        self.set_charge(
            key,
            new,
            route.map_or(0, |route| route.regexes() * hostnames),
            route.is_some_and(|route| route.counted),
            dirty,
        );
    }

    fn set_charge(
        &mut self,
        key: &RouteKey,
        new: Option<(Charge<ChargedCluster>, Matching)>,
        regexes: u64,
        is_counted: bool,
        dirty: &mut Dirty,
    ) {
        let namespace = &key.name.namespace;
        let allowed = self.allowed(namespace);
        let most = self.limits_of(namespace).matching_micros;
        let of_policies = new.as_ref().map_or(0, |(_, matching)| matching.of_policies);
        let new = new.map(|(charge, matching)| Charged {
            too_large: too_large(charge.whole(), allowed).or_else(|| matching.too_long(most)),
            charge,
            matching,
        });
        let was_within = self.numbers_within(key);
        let before = parts(self.charge_of(key));
        let old = self.charges.remove(key);
        let served = new.as_ref().and_then(Charged::served);
        let member = |weight: u64| {
            served.map(|charge| Member {
                group: namespace.clone(),
                created: charge.created,
                weight,
            })
        };
        let mut moved = self.number_of_routes.set(key, member(1));
        let regexes = regexes + of_policies;
        let regexes = member(regexes).filter(|_| regexes > 0);
        moved.extend(self.regexes.set(key, regexes));
        moved.extend(self.set_matching(key, old.as_ref(), new.as_ref()));
        dirty.routes.extend(
            self.counted_routes
                .set(key, member(1).filter(|_| is_counted)),
        );
        let why = |charged: &Option<Charged>| {
            charged
                .as_ref()
                .and_then(|charged| charged.too_large.clone())
        };
        let is_told_else = why(&old) != why(&new);
        if let Some(new) = new {
            self.charges.insert(key.clone(), new);
        }
        if is_told_else || was_within != self.numbers_within(key) {
            dirty.routes.insert(key.clone());
        }
        self.recount(key, before, dirty);
        self.settle(moved, dirty);
    }

    /// Marks routes that numbers refuse or admit now. One that they refuse leaves the others of its
    /// namespace its memory and clusters.
    pub(super) fn settle(&mut self, routes: impl IntoIterator<Item = RouteKey>, dirty: &mut Dirty) {
        for route in routes {
            let before = parts(self.charge_of(&route));
            self.recount(&route, before, dirty);
            dirty.routes.insert(route);
        }
    }

    /// Counts the memory and clusters of a route, of which it was counted with these clusters, and
    /// those of routes that share them.
    fn recount(
        &mut self,
        key: &RouteKey,
        before: (i64, BTreeSet<ChargedCluster>),
        dirty: &mut Dirty,
    ) {
        let [number, regexes, matching, _] = self.numbers_within(key);
        if number && regexes && matching {
            self.refused.remove(key);
        } else {
            self.refused.insert(key.clone());
        }
        let after = parts(self.charge_of(key));
        let others = self
            .clusters
            .replace(&key.name.namespace, before, after, key);
        for route in others.iter().chain([key]) {
            self.weigh(route, dirty);
        }
    }

    /// What a route takes, if it is not too large for itself and no number refuses it.
    fn charge_of(&self, key: &RouteKey) -> Option<&Charge<ChargedCluster>> {
        let charged = self.charges.get(key).and_then(Charged::served);
        charged.filter(|_| !self.refused.contains(key))
    }

    /// Whether a route is within each of the quotas that count something.
    fn numbers_within(&self, key: &RouteKey) -> [bool; 4] {
        [
            self.number_of_routes.has(key),
            self.regexes.has(key),
            self.slow_hostname(key).is_none(),
            self.counted_routes.has(key),
        ]
    }

    /// Has the rules of a route counted by themselves, as it asks; one too many gets a note.
    pub(crate) fn counted(&self, key: &RouteKey, mut resolved: Resolved) -> Resolved {
        if !self.counted_routes.has(key) {
            let namespace = &key.name.namespace;
            let most = self.limits_of(namespace).counted_routes;
            let text = format!(
                "it is not counted by itself: the routes of namespace {namespace} that ask for it, the oldest first, \
                 exceed limits.namespace.countedRoutes {most}"
            );
            let note = match resolved.note {
                Some(note) => format!("{note}; {text}"),
                None => text,
            };
            resolved.note = Some(note);
            return resolved;
        }
        resolved.counted = true;
        resolved
    }

    /// Updates the weight of a route: it pays for the clusters that no older one has.
    fn weigh(&mut self, key: &RouteKey, dirty: &mut Dirty) {
        let namespace = &key.name.namespace;
        let charge = self.charge_of(key);
        let counted = charge.map(|charge| charge.counted(namespace, key, &self.clusters));
        let before = self.routes.cost(key);
        dirty.routes.extend(self.routes.set(key, counted));
        if self.routes.cost(key) != before {
            // Its message may say what it needs.
            dirty.routes.insert(key.clone());
        }
    }
}
