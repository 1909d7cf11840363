//! The costs of routes.

use super::super::attached_policies::AttachedPolicies;
use super::super::attachments::Attachments;
use super::super::backend_policies::BackendPolicies;
use super::super::charge::{Charge, Charged, ChargedCluster, Charging, Matching, parts};
use super::super::dirty::Dirty;
use super::super::parents::Parents;
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
        (policies, attached): (&BackendPolicies, &AttachedPolicies),
        dirty: &mut Dirty,
    ) {
        let charging = Charging {
            parents,
            attachments,
            policies,
            attached,
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
        let new = new.map(|(charge, matching)| Charged {
            too_large: too_large(charge.whole(), allowed).or_else(|| matching.too_long(most)),
            charge,
            matching,
        });
        let was_within = self.numbers_within(key);
        let old = self.charges.remove(key);
        let served = new.as_ref().and_then(Charged::served);
        let others = self.clusters.replace(
            namespace,
            parts(old.as_ref().and_then(Charged::served)),
            parts(served),
            key,
        );
        let member = |weight: u64| {
            served.map(|charge| Member {
                group: namespace.clone(),
                created: charge.created,
                weight,
            })
        };
        dirty
            .routes
            .extend(self.number_of_routes.set(key, member(1)));
        dirty.routes.extend(
            self.regexes
                .set(key, member(regexes).filter(|_| regexes > 0)),
        );
        self.set_matching(key, old.as_ref(), new.as_ref(), dirty);
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
        for route in others.iter().chain([key]) {
            self.weigh(route, dirty);
        }
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
        let charge = self.charges.get(key).and_then(Charged::served);
        let counted = charge.map(|charge| charge.counted(namespace, key, &self.clusters));
        let before = self.routes.cost(key);
        dirty.routes.extend(self.routes.set(key, counted));
        if self.routes.cost(key) != before {
            // Its message may say what it needs.
            dirty.routes.insert(key.clone());
        }
    }
}
