//! The stage of policies: each is judged by itself when it changes or something that it refers to; then the Services that it
//! is about have theirs ranked anew. What comes of that are their backends, the routes that lead there, and statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::admission::Admission;
use super::attachments::handed_out;
use super::backend_policies::{BackendPolicies, First, Uses};
use super::backends::Backends;
use super::dirty::Dirty;
use super::judged_policy::Judged;
use super::key::RouteKey;
use super::limits::Quotas;
use super::settings::Settings;
use crate::inputs::{Kind, ObjectKey, Policy};
use crate::model::ObjectName;
use crate::store::{Store, targets};

/// The stage that judges and ranks policies.
pub(super) struct Policing<'a> {
    pub(super) settings: &'a Settings,
    pub(super) store: &'a Store,
    pub(super) quotas: &'a Quotas,
    pub(super) admission: Admission<'a>,
    /// The backends that are in use.
    pub(super) backends: &'a Backends,
    pub(super) policies: &'a mut BackendPolicies,
}

impl Policing<'_> {
    /// Judges a policy by itself, and marks the Services that it is about where that comes out otherwise than before.
    pub(super) fn judge(&mut self, key: &ObjectKey, dirty: &mut Dirty) {
        let policy = self.store.policy(key);
        let new = policy.map(|policy| match self.quotas.policy_beyond(key, &self.settings.limits) {
            Some(error) => Judged::refused(policy, error),
            None => Judged::of(policy, self.store, self.settings),
        });
        dirty.statuses.insert(key.clone());
        if self.policies.set_judged(key, new) {
            let targets = policy.into_iter().flat_map(|policy| &policy.targets);
            dirty.policed.extend(targets.map(|target| target.service.clone()));
        }
    }

    /// Decides which policies a Service goes by, and marks what changes by that. Of several of a kind the oldest comes first,
    /// then the first by name; one for a port comes before one for all (Gateway API, `BackendTLSPolicySpec`).
    pub(super) fn rank(&mut self, service: &ObjectName, dirty: &mut Dirty) {
        let policies = self.store.policies_by_service.of(service).filter_map(|key| self.store.policy(key));
        let mut policies: Vec<&Arc<Policy>> = policies.collect();
        policies.sort_by(|a, b| (a.meta.created, &a.meta.name).cmp(&(b.meta.created, &b.meta.name)));
        dirty.statuses.extend(policies.iter().map(|policy| policy.key()));
        dirty.backends.extend(self.backends.of_service(service).cloned());
        let mut first = First::new();
        for policy in policies {
            for target in policy.targets.iter().filter(|target| target.service == *service) {
                first.entry((policy.kind(), target.section.clone())).or_insert_with(|| policy.key());
            }
        }
        let of_port = |name: &Arc<str>| {
            let at = |section| first.get(&(Kind::BackendTLSPolicy, section));
            at(Some(name.clone())).or(at(None))
        };
        let ports = self.store.service(service).map(|service| service.ports.as_slice()).unwrap_or_default();
        let ports: BTreeMap<u16, ObjectKey> =
            ports.iter().filter_map(|port| Some((port.port, of_port(&port.name)?.clone()))).collect();
        let ranked = self.policies.set_ranking(service, first, ports);
        if !ranked.begins_or_ends && !ranked.changes_routes {
            return;
        }
        for route in self.store.routes_by_service.of(service) {
            dirty.uses.insert(route.clone());
            if ranked.changes_routes {
                touch_units_of(self.admission, route, dirty);
            }
        }
    }

    /// Takes down where a route is attached that leads to Services with policies; they tell of these Gateways.
    pub(super) fn note_uses(&mut self, key: &RouteKey, dirty: &mut Dirty) {
        if self.policies.is_empty() {
            return;
        }
        let services = self.store.route(key).into_iter().flat_map(|route| targets(route));
        let services: BTreeSet<ObjectName> = services.filter(|of| self.policies.knows(of)).cloned().collect();
        let Admission { parents, attachments, .. } = self.admission;
        let accepted = attachments.of(key).iter().filter(|(.., attachment)| attachment.accepted.is_ok());
        let gateways = accepted.filter_map(|(_, parent, _)| Some(parents.get(parent)?.stand.gateway.clone()));
        let gateways = if services.is_empty() { BTreeSet::new() } else { gateways.collect() };
        for service in self.policies.set_route(key, Uses { services, gateways }) {
            dirty.statuses.extend(self.store.policies_by_service.of(&service).cloned());
        }
    }
}

/// Marks everything that a route gives to hostnames.
pub(super) fn touch_units_of(admission: Admission<'_>, key: &RouteKey, dirty: &mut Dirty) {
    let Admission { parents, attachments, .. } = admission;
    for (listener, hostname, _) in handed_out(key, attachments.of(key)) {
        if let Some(id) = parents.frontend_of(&listener) {
            attachments.touch_solved(&id, &listener, &hostname, dirty);
            admission.touch_kept(&id, &listener, &hostname, key, dirty);
            dirty.units.insert((id, hostname));
        }
    }
}
