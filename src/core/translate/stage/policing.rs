//! The stage of policies: each is judged by itself when it changes or something that it refers to.
//! Then the units of what it is attached to are compiled again, if something else comes of it; and
//! the Services that it is about have theirs ranked anew. What comes of that are their backends,
//! the routes that lead there, and statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use super::admission::Admission;
use super::policy_marks::{touch_filtered, touch_traced, touch_units_of};
use crate::key::{ParentKey, RouteKey};
use crate::rule::ca_bundles::next_time;
use crate::rule::gateway_exposure::Fleet;
use crate::rule::settings::Settings;
use crate::rule::surroundings::Surroundings;
use crate::settings::judged;
use crate::state::backends::Backends;
use crate::state::datagrams;
use crate::state::dirty::Dirty;
use crate::state::log_collectors;
use crate::state::policies::Policies;
use crate::state::policies::backends::{RankedPolicy, Uses};
use crate::state::policies::judged::Judged;
use crate::state::quotas::Quotas;
use gatewright_objects::inputs::{
    Kind, ListenerFilter, ObjectKey, Policy, PolicyTarget, RouteKind,
};
use gatewright_objects::model::{ObjectName, Transport, TransportPort, xbackend_of};
use gatewright_objects::store::{Store, targets};

/// The stage that judges and ranks policies.
pub(crate) struct Policing<'a> {
    pub(crate) now: SystemTime,
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) quotas: &'a Quotas,
    pub(crate) admission: Admission<'a>,
    /// The backends that are in use.
    pub(crate) backends: &'a Backends,
    pub(crate) policies: &'a mut Policies,
}

impl Policing<'_> {
    /// Judges a policy by itself, and marks what goes by another policy for it. The work does not
    /// grow with the other policies: of those beyond the limit there may be any number.
    pub(crate) fn judge(&mut self, key: &ObjectKey, dirty: &mut Dirty) {
        let policy = self.store.policy(key);
        let next = policy.and_then(|policy| next_time(policy.roots(), self.store, self.now));
        self.policies.set_deadline(key, next);
        let new = policy.map(|policy| self.judged(key, policy));
        dirty.statuses.insert(key.clone());
        let [before, after] = [self.policies.get(key), new.as_ref()]
            .map(|judged| judged.and_then(|judged| judged.credentials.as_ref()));
        if before != after {
            dirty.logins.insert(key.name.clone());
        }
        // The Services that requests or spans are sent to are uses of its targets.
        let old = self.policies.get(key).map(|judged| &judged.policy);
        let policies = old.into_iter().chain(policy);
        let sending = policies.filter(|policy| policy.servers().next().is_some());
        let targets = sending.flat_map(|policy| &policy.targets);
        dirty
            .uses
            .extend(targets.map(|target| target.object.clone()));
        for target in self.policies.set(key, new) {
            if target.object.kind == Kind::Service {
                dirty.policed.insert(target.object.name);
                continue;
            }
            dirty.uses.insert(target.object.clone());
            if key.kind == Kind::XTelemetryPolicy {
                touch_traced(&target.object.name, self.store, dirty);
            } else {
                self.touch_guarded(key.kind, &target, dirty);
            }
            if key.kind != Kind::AccessPolicy {
                // Another one may be the first of its target now.
                let others = self.policies.on(&target.object);
                let others = others.map(|judged| judged.policy.key());
                dirty
                    .statuses
                    .extend(others.filter(|other| other.kind == key.kind));
            }
        }
    }

    fn judged(&self, key: &ObjectKey, policy: &Arc<Policy>) -> Judged {
        let beyond = self.quotas.policy_beyond(key);
        if policy.is_on_requests() {
            let limits = (
                self.quotas.of_objects(),
                self.quotas.matching_micros(&key.name.namespace),
            );
            return judged(policy, beyond, limits, self.store);
        }
        let around = Surroundings {
            store: self.store,
            settings: self.settings,
            now: self.now,
        };
        Judged::of(policy, beyond, &around)
    }

    /// Decides which policies a Service goes by, and marks what changes by that. Of several of a
    /// kind the oldest comes first, then the first by name; one for a port comes before one for all
    /// (Gateway API, `BackendTLSPolicySpec`).
    pub(crate) fn rank(&mut self, service: &ObjectName, dirty: &mut Dirty) {
        let object = ObjectKey::new(Kind::Service, service.clone());
        dirty
            .statuses
            .extend(self.policies.accepted(&object).cloned());
        dirty
            .backends
            .extend(self.backends.of_service(service).cloned());
        log_collectors::touch_collector(service, self.store, dirty);
        let tls = self.verified_ports(service);
        let backends = self.policed_ports(service);
        let prefers_zone = self
            .store
            .service(service)
            .is_some_and(|service| service.prefers_zone());
        let is_targeted = self
            .store
            .indexes()
            .policies_by_service(service)
            .next()
            .is_some();
        let ranked = self
            .policies
            .set_ranking(service, is_targeted, tls, backends, prefers_zone);
        // Sessions, and the CA certificates of clusters, are part of what routes take.
        dirty
            .charged
            .extend(self.store.indexes().routes_by_service(service).cloned());
        self.touch_senders(service, dirty);
        if !ranked.begins_or_ends && !ranked.changes_routes && !ranked.changes_settings {
            return;
        }
        for route in self.store.indexes().routes_by_service(service) {
            dirty.uses.insert(route.object());
            // The cluster of a hostname that is passed through belongs to its unit.
            // So does that of all datagrams of a port, and their route has notes on policies.
            let is_own = matches!(route.kind, RouteKind::Tls | RouteKind::Udp);
            let has_clusters = is_own && ranked.changes_settings;
            if route.kind == RouteKind::Udp {
                dirty.statuses.insert(route.object());
            }
            if ranked.changes_routes || has_clusters {
                touch_units_of(self.admission, route, dirty);
            }
        }
        for parent in self.store.indexes().parents_by_service(service) {
            dirty.uses.insert(parent.object());
            if ranked.changes_routes {
                touch_filtered(self.admission, parent, dirty);
            }
        }
    }

    /// The BackendTLSPolicies that the TCP ports of a Service go by; the XBackend itself where one
    /// that asks for TLS is served as the Service.
    fn verified_ports(&self, name: &ObjectName) -> BTreeMap<u16, ObjectKey> {
        let ports = self
            .store
            .service(name)
            .map(|service| service.ports.as_slice())
            .unwrap_or_default();
        let ports = ports.iter().filter(|port| port.transport == Transport::Tcp);
        let kind = match xbackend_of(name) {
            Some(_) => Kind::XBackend,
            None => Kind::BackendTLSPolicy,
        };
        ports
            .filter_map(|port| {
                let policy = of_port(kind, &port.name, name, self.policies)?;
                Some((port.port, policy.clone()))
            })
            .collect()
    }

    /// The TrafficPolicies that the ports of a Service go by.
    fn policed_ports(&self, name: &ObjectName) -> BTreeMap<TransportPort, RankedPolicy> {
        let Some(service) = self.store.service(name) else {
            return BTreeMap::new();
        };
        service
            .ports
            .iter()
            .filter_map(|port| {
                let policy = of_port(Kind::TrafficPolicy, &port.name, name, self.policies)?;
                let ranked = RankedPolicy {
                    policy: policy.clone(),
                    is_checked: datagrams::is_checked(service, port),
                };
                let number = port.port;
                let transport = port.transport;
                Some((TransportPort { number, transport }, ranked))
            })
            .collect()
    }

    /// Marks the policies that have requests or spans sent to a Service, and their targets.
    fn touch_senders(&self, service: &ObjectName, dirty: &mut Dirty) {
        for key in self.store.indexes().policies_by_reference(service) {
            dirty.statuses.insert(key.clone());
            let policy = self.store.policy(key);
            let targets = policy.into_iter().flat_map(|policy| &policy.targets);
            dirty
                .uses
                .extend(targets.map(|target| target.object.clone()));
        }
    }

    /// The Services that the policies of an object have requests or spans sent to, and may.
    fn guards(&self, object: &ObjectKey) -> impl Iterator<Item = &ObjectName> {
        let keys = self.store.indexes().policies_by_target(object);
        let policies = keys.filter_map(move |key| self.store.policy(key));
        policies.flat_map(move |policy| {
            let namespace = &policy.meta.name.namespace;
            policy.servers().filter(move |service| {
                self.store
                    .permits_backend(policy.kind(), namespace, service)
            })
        })
    }

    /// Updates the Gateways at which a route, or the filters of a Gateway or ListenerSet, refer to
    /// Services with policies: the statuses of the policies name these Gateways. References without
    /// a ReferenceGrant do not count: anybody could have such, at Gateways with names of their
    /// choice.
    pub(crate) fn note_uses(&mut self, key: &ObjectKey, dirty: &mut Dirty) {
        if self.policies.concern_no_service() {
            return;
        }
        let uses = match RouteKey::of(key) {
            Some(route) => self.of_route(&route),
            None => self.of_parent(key),
        };
        for service in self.policies.set_user(key, uses) {
            dirty
                .statuses
                .extend(self.store.indexes().policies_by_service(&service).cloned());
        }
    }

    fn of_route(&self, key: &RouteKey) -> Uses {
        let services = self
            .store
            .route(key)
            .into_iter()
            .flat_map(|route| targets(route));
        let Admission {
            parents,
            attachments,
            ..
        } = self.admission;
        let accepted = attachments
            .of(key)
            .iter()
            .filter(|(.., attachment)| attachment.accepted.is_ok());
        let gateways = accepted
            .filter_map(|(_, parent, _)| Some(parents.get(parent)?.placement.gateway.clone()));
        self.uses(&key.object(), services, gateways)
    }

    /// Returns the Services that the filters of an accepted Gateway or ListenerSet refer to, and
    /// those that the access log of a Gateway goes to.
    fn of_parent(&self, key: &ObjectKey) -> Uses {
        let Some(key) = ParentKey::of(key) else {
            return Uses::default();
        };
        let Some(parent) = self
            .admission
            .parents
            .get(&key)
            .filter(|parent| parent.accepted.is_ok())
        else {
            return Uses::default();
        };
        let filters = self
            .store
            .listeners(&key)
            .flat_map(|listener| &listener.filters);
        let exposure = &parent.placement.exposure;
        let logs = exposure
            .access_log
            .iter()
            .filter(|_| exposure.fleet != Fleet::Shared);
        let collectors = logs.flat_map(|log| log.collectors());
        let services = filters
            .filter_map(ListenerFilter::auth)
            .map(|auth| &auth.server.name)
            .chain(collectors.map(|collector| &collector.port.service));
        self.uses(
            &key.object(),
            services,
            std::iter::once(parent.placement.gateway.clone()),
        )
    }

    fn uses<'b>(
        &self,
        by: &ObjectKey,
        services: impl Iterator<Item = &'b ObjectName>,
        gateways: impl Iterator<Item = ObjectName>,
    ) -> Uses {
        let permitted = services.filter(|service| {
            self.store
                .permits_backend(by.kind, &by.name.namespace, service)
        });
        let services: BTreeSet<ObjectName> = permitted
            .cloned()
            .chain(self.guards(by).cloned())
            .filter(|service| self.policies.knows(service))
            .collect();
        let gateways = if services.is_empty() {
            BTreeSet::new()
        } else {
            gateways.collect()
        };
        Uses { services, gateways }
    }
}

fn of_port<'a>(
    kind: Kind,
    name: &Arc<str>,
    service: &ObjectName,
    policies: &'a Policies,
) -> Option<&'a ObjectKey> {
    let object = ObjectKey::new(Kind::Service, service.clone());
    let port = PolicyTarget {
        object: object.clone(),
        section: Some(name.clone()),
    };
    let of_section = policies.first(kind, &port);
    of_section.or_else(|| policies.first(kind, &PolicyTarget::whole(object)))
}
