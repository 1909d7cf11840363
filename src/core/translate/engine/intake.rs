//! Intake of changes: updates the inputs, and marks what depends on them.

use super::super::delta::Change;
use super::super::fact::Fact;
use super::super::key::{ParentKey, RouteKey};
use super::super::rule::host_option::HostOption;
use super::super::rule::xbackends;
use super::super::stage::certificate_condition::touch_awaiting;
use super::super::state::dirty::Dirty;
use super::Engine;
use gatewright_objects::inputs::{Kind, ObjectChange, ObjectKey};
use gatewright_objects::model::ObjectName;

impl Engine {
    /// Applies one change to the inputs and marks what depends on it.
    pub(super) fn take_in(&mut self, change: Change, dirty: &mut Dirty) {
        if let Some(service) = xbackends::service(&change) {
            self.take_in(service, dirty);
        }
        let (key, replaced) = match change {
            Change::Object(ObjectChange::Put(mut object)) => {
                object.drop_over_limit(&self.settings.limits.object);
                self.store.share(&mut object);
                (object.key(), self.store.put(object))
            }
            Change::Object(ObjectChange::Delete(key)) => {
                let replaced = self.store.delete(&key);
                (key, replaced)
            }
            Change::Fact(Fact::Challenge(asked, answer)) => {
                return self.answering().set(asked, answer, dirty);
            }
            Change::Fact(Fact::TlsChallenges(service)) => {
                return self
                    .certificates
                    .challenges
                    .set_tls(service, &self.frontends, dirty);
            }
            Change::Fact(Fact::IssuanceProblem(secret, text)) => {
                self.touch_secret(&secret, dirty);
                return self.certificates.issuance.set_trouble(secret, text);
            }
            Change::Fact(Fact::ExpectedIssuer(secret, by)) => {
                self.touch_secret(&secret, dirty);
                return self.certificates.issuance.set_awaited(secret, by);
            }
            Change::Fact(Fact::ServiceProblem(gateway, text)) => {
                return self.gateway_services.set_failure(gateway, text, dirty);
            }
            Change::Fact(Fact::EnvoysProblem(gateway, text)) => {
                return self
                    .gateway_services
                    .set_envoys_problem(gateway, text, dirty);
            }
            Change::Fact(Fact::Recorded(what, owner)) => {
                return self.owners().take_record(what, owner, dirty);
            }
            Change::Fact(Fact::Granted(route, grants)) => {
                if self.store.set_grants(&route, grants) {
                    touch_route(&route, dirty);
                }
                return;
            }
            Change::Fact(Fact::Withheld(set, listeners)) => {
                if self.store.set_withheld(&set, listeners) {
                    touch_parent(ParentKey::ListenerSet(set), dirty);
                }
                return;
            }
            Change::Fact(Fact::Governed(gateway, governs)) => {
                if self.store.set_governed(&gateway, governs) {
                    touch_parent(ParentKey::Gateway(gateway), dirty);
                }
                return;
            }
            Change::Fact(Fact::Definitions(definitions)) => {
                if self.store.set_definitions(definitions) {
                    self.touch_classes(dirty);
                }
                return;
            }
            Change::Fact(Fact::Resolved(service, resolution)) => {
                return self.names.take(
                    &service,
                    resolution,
                    &mut self.store,
                    &self.service_endpoints,
                    dirty,
                );
            }
            Change::Fact(Fact::TicketKeys(keys)) => {
                if self.certificates.tickets.set_keys(keys, dirty) {
                    self.touch_tickets(dirty);
                }
                return;
            }
            Change::Fact(Fact::TrustBundles(can_be)) => {
                if self.store.set_trust_bundles(can_be) {
                    self.touch_trust_bundles(dirty);
                }
                return;
            }
        };
        let Some(replaced) = replaced else { return };
        self.quotas
            .note_extent(&key, &self.store, &self.service_endpoints, dirty);
        self.service_endpoints
            .touch_addresses(&replaced.addresses, dirty);
        self.mark(&key, &replaced, dirty);
    }

    pub(super) fn take_grants_of_classes(&mut self, dirty: &mut Dirty) {
        let controller = self.settings.controller.clone();
        self.owners().take_classes(&controller, dirty);
    }

    /// True if a Service becomes the target of policies, or ceases to be one.
    pub(super) fn begins_or_ends(&self, service: &ObjectName) -> bool {
        let is_targeted = self
            .store
            .indexes()
            .policies_by_service(service)
            .next()
            .is_some();
        is_targeted != self.policies.knows(service)
    }

    /// Marks the statuses of listeners that ask for session tickets.
    fn touch_tickets(&self, dirty: &mut Dirty) {
        for key in self.parents.keys() {
            let parent = self.parents.get(key);
            let mut listeners = parent.into_iter().flat_map(|parent| &parent.listeners);
            if listeners.any(|listener| listener.tickets == HostOption::On) {
                dirty.statuses.insert(key.object());
            }
        }
    }

    /// Marks the users of ClusterTrustBundles, and classes, which list them among their features.
    fn touch_trust_bundles(&self, dirty: &mut Dirty) {
        let (policies, gateways) = self.store.users_of_trust_bundles();
        dirty.policies.extend(policies);
        dirty
            .parents
            .extend(gateways.into_iter().map(ParentKey::Gateway));
        self.touch_classes(dirty);
    }

    /// Marks the statuses of classes, which list features, and say where another class decides.
    pub(super) fn touch_classes(&self, dirty: &mut Dirty) {
        dirty.statuses.extend(
            self.store
                .class_names()
                .map(|name| ObjectKey::new(Kind::GatewayClass, name.clone())),
        );
    }

    /// Marks the statuses of parents that have a Secret, and of routes that are judged by its
    /// certificate.
    fn touch_secret(&self, secret: &ObjectName, dirty: &mut Dirty) {
        for key in self.parents.of_secret(secret) {
            dirty.statuses.insert(key.object());
            if let Some(parent) = self.parents.get(key) {
                touch_awaiting(parent, secret, &self.store, dirty);
            }
        }
    }
}

pub(super) fn touch_parent(key: ParentKey, dirty: &mut Dirty) {
    dirty.statuses.insert(key.object());
    dirty.parents.insert(key);
}

pub(super) fn touch_route(key: &RouteKey, dirty: &mut Dirty) {
    dirty.attachments.insert(key.clone());
    dirty.routes.insert(key.clone());
    dirty.statuses.insert(key.object());
}
