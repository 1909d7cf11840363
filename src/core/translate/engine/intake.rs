//! Intake of changes: updates the inputs, and marks what depends on them.

use super::super::delta::Change;
use super::super::fact::Fact;
use super::super::key::{ParentKey, RouteKey};
use super::super::rule::host_option::HostOption;
use super::super::rule::xbackends;
use super::super::stage::certificate_condition::touch_awaiting;
use super::super::stage::fleet::{touch_class, touch_fleet, touch_parameters};
use super::super::state::answers;
use super::super::state::dirty::Dirty;
use super::super::state::log_collectors;
use super::super::state::telemetry_marks;
use super::Engine;
use gatewright_objects::inputs::{Kind, ObjectChange, ObjectKey};
use gatewright_objects::model::{ObjectName, xbackend_service};

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
        let name = &key.name;
        match key.kind {
            Kind::Namespace => {
                let namespace = &name.name;
                dirty.parents.extend(
                    self.store
                        .gateways_in(namespace)
                        .into_iter()
                        .map(ParentKey::Gateway),
                );
                dirty.parents.extend(
                    self.store
                        .sets_in(namespace)
                        .into_iter()
                        .map(ParentKey::ListenerSet),
                );
                dirty.attachments.extend(self.store.routes_in(namespace));
                // A label may entitle it to names below another namespace's wildcard, and keeps
                // them from others.
                dirty.owned.extend(self.register.denied(namespace).cloned());
                self.owners().take_label(namespace, dirty);
                self.register
                    .allow(namespace, self.quotas.allowed(namespace).record);
                self.service_endpoints.touch_namespace(
                    namespace,
                    &self.store,
                    &self.frontends,
                    dirty,
                );
            }
            Kind::GatewayClass => {
                touch_class(&self.store, name, dirty);
                self.touch_classes(dirty);
                self.take_grants_of_classes(dirty);
            }
            Kind::GatewayParameters => {
                touch_parameters(&self.store, name, dirty);
                self.touch_classes(dirty);
                self.take_grants_of_classes(dirty);
            }
            Kind::Gateway => touch_parent(ParentKey::Gateway(name.clone()), dirty),
            Kind::ListenerSet | Kind::XListenerSet => {
                dirty.parents.extend(ParentKey::of(&key));
            }
            Kind::HTTPRoute
            | Kind::GRPCRoute
            | Kind::TLSRoute
            | Kind::TCPRoute
            | Kind::UDPRoute => {
                let route = RouteKey::of(&key).expect("these are kinds of routes");
                touch_route(&route, dirty);
            }
            Kind::ReferenceGrant => {
                for parent in self.store.indexes().parents_across(&name.namespace) {
                    dirty.parents.insert(parent.clone());
                    dirty.uses.insert(parent.object());
                }
                let traced = self.store.indexes().telemetry_across(&name.namespace);
                for policy in traced {
                    telemetry_marks::touch_policy(policy, &self.store, dirty);
                }
                dirty
                    .attached
                    .extend(self.store.attached_across(&name.namespace).cloned());
                for route in self.store.indexes().routes_across(&name.namespace) {
                    dirty.routes.insert(route.clone());
                    dirty.charged.insert(route.clone());
                    dirty.uses.insert(route.object());
                }
            }
            Kind::Service => {
                dirty
                    .attached
                    .extend(self.store.attached_by_content(name).cloned());
                let routes = self.store.indexes().routes_by_service(name);
                for route in routes {
                    dirty.routes.insert(route.clone());
                    // A backend that leads nowhere has a route of its own.
                    dirty.charged.insert(route.clone());
                }
                dirty
                    .parents
                    .extend(self.store.indexes().parents_by_service(name).cloned());
                if self
                    .store
                    .indexes()
                    .policies_by_service(name)
                    .next()
                    .is_some()
                    || self.policies.prefers_zone(name)
                    || self
                        .store
                        .service(name)
                        .is_some_and(|service| service.prefers_zone())
                {
                    dirty.policed.insert(name.clone());
                }
                self.service_endpoints.touch_endpoints(name, dirty);
                dirty.names.insert(name.clone());
                self.gateway_services.take_service(
                    name,
                    replaced.made_service.as_deref(),
                    &self.store,
                    dirty,
                );
                for gateway in self.parents.standing_on(name) {
                    touch_parent(ParentKey::Gateway(gateway.clone()), dirty);
                }
                touch_fleet(&self.settings, &self.parents, name, dirty);
                log_collectors::touch_collector(name, &self.store, dirty);
            }
            Kind::EndpointSlice => {
                for service in replaced
                    .service
                    .into_iter()
                    .chain(self.store.service_of_slice(name))
                {
                    self.service_endpoints.touch_endpoints(&service, dirty);
                    if [
                        self.settings.envoys.as_ref(),
                        self.settings.dedicated.service(),
                    ]
                    .contains(&Some(&service))
                    {
                        self.gateway_services.touch_all(dirty);
                        dirty.parents.extend(
                            self.parents
                                .standing_by_names()
                                .cloned()
                                .map(ParentKey::Gateway),
                        );
                    }
                    dirty
                        .services
                        .extend(self.gateway_services.gateway_behind(&service).cloned());
                }
                self.gateway_services.take_slice(
                    name,
                    replaced.made.as_deref(),
                    &self.store,
                    dirty,
                );
            }
            Kind::Secret => {
                dirty.parents.extend(self.parents.of_secret(name).cloned());
                dirty
                    .attached
                    .extend(self.store.attached_by_content(name).cloned());
            }
            // Services with these addresses are marked above.
            Kind::Pod | Kind::Node => {}
            Kind::BackendTLSPolicy
            | Kind::XBackend
            | Kind::XBackendTrafficPolicy
            | Kind::TrafficPolicy => {
                let policies = [replaced.policy.as_ref(), self.store.policy(&key)]
                    .into_iter()
                    .flatten();
                let services = policies
                    .flat_map(|policy| &policy.targets)
                    .map(|target| &target.service);
                dirty.policed.extend(
                    services
                        .filter(|service| self.begins_or_ends(service))
                        .cloned(),
                );
                let is_attached = self.store.attached_policy(&key).is_some();
                if is_attached || self.attached.get(&key).is_some() {
                    dirty.attached.insert(key.clone());
                }
                if key.kind == Kind::XBackend {
                    // Routes say why it cannot be served.
                    let service = xbackend_service(name);
                    for route in self.store.indexes().routes_by_service(&service) {
                        dirty.routes.insert(route.clone());
                        dirty.charged.insert(route.clone());
                    }
                }
                if replaced.policy.is_some() || self.store.policy(&key).is_some() {
                    dirty.policies.insert(key);
                }
            }
            Kind::AccessPolicy => dirty.attached.insert(key),
            Kind::XTelemetryPolicy => {
                let policy = self.store.telemetry_policy(name);
                let now = policy.iter().flat_map(|policy| &policy.gateways);
                for gateway in replaced.traced.iter().chain(now) {
                    telemetry_marks::touch_traced(gateway, &self.store, dirty);
                }
                dirty.statuses.insert(key);
            }
            Kind::DirectResponse => {
                answers::touch(self.store.routes_by_response(name), &self.store, dirty);
            }
            Kind::ConfigMap | Kind::ClusterTrustBundle => {
                if key.kind == Kind::ConfigMap {
                    dirty
                        .attached
                        .extend(self.store.attached_by_content(name).cloned());
                    answers::touch(self.store.routes_by_body(name), &self.store, dirty);
                }
                dirty
                    .policies
                    .extend(self.store.indexes().policies_by_roots(name).cloned());
                let gateways = self.store.indexes().gateways_by_roots(name).cloned();
                dirty.parents.extend(gateways.map(ParentKey::Gateway));
            }
            Kind::TenantGateway | Kind::Issuer | Kind::Certificate => {}
        }
    }

    fn take_grants_of_classes(&mut self, dirty: &mut Dirty) {
        let controller = self.settings.controller.clone();
        self.owners().take_classes(&controller, dirty);
    }

    /// True if a Service becomes the target of policies, or ceases to be one.
    fn begins_or_ends(&self, service: &ObjectName) -> bool {
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
    fn touch_classes(&self, dirty: &mut Dirty) {
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

fn touch_parent(key: ParentKey, dirty: &mut Dirty) {
    dirty.statuses.insert(key.object());
    dirty.parents.insert(key);
}

fn touch_route(key: &RouteKey, dirty: &mut Dirty) {
    dirty.attachments.insert(key.clone());
    dirty.routes.insert(key.clone());
    dirty.statuses.insert(key.object());
}
