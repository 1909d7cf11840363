//! The stage of policies: each is judged by itself when it changes or something that it refers to;
//! then the Services that it is about have theirs ranked anew. What comes of that are their
//! backends, the routes that lead there, and statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use super::admission::Admission;
use crate::key::{ParentKey, RouteKey};
use crate::rule::ca_bundles::next_time;
use crate::rule::gateway_exposure::Fleet;
use crate::rule::settings::Settings;
use crate::rule::surroundings::Surroundings;
use crate::state::attachments::handed_out;
use crate::state::backend_policies::{BackendPolicies, RankedPolicy, Uses};
use crate::state::backends::Backends;
use crate::state::datagrams;
use crate::state::dirty::Dirty;
use crate::state::judged_policy::Judged;
use crate::state::log_collectors;
use crate::state::parent::ParentListener;
use crate::state::quotas::Quotas;
use gatewright_objects::inputs::{Kind, ListenerFilter, ObjectKey, RouteKind};
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
    pub(crate) policies: &'a mut BackendPolicies,
}

impl Policing<'_> {
    /// Judges a policy by itself, and marks the Services that go by another policy for it. The work
    /// does not grow with the other policies: of those beyond the limit there may be any number.
    pub(crate) fn judge(&mut self, key: &ObjectKey, dirty: &mut Dirty) {
        let around = Surroundings {
            store: self.store,
            settings: self.settings,
            now: self.now,
        };
        let policy = self.store.policy(key);
        self.policies.set_deadline(
            key,
            policy.and_then(|policy| next_time(policy.references(), self.store, self.now)),
        );
        let new = policy.map(|policy| {
            let judged = match self.quotas.policy_beyond(key) {
                Some(error) => Judged::refused(policy, error),
                None => Judged::of(policy, &around),
            };
            (policy.clone(), judged)
        });
        dirty.statuses.insert(key.clone());
        dirty.policed.extend(self.policies.set_judged(key, new));
    }

    /// Decides which policies a Service goes by, and marks what changes by that. Of several of a
    /// kind the oldest comes first, then the first by name; one for a port comes before one for all
    /// (Gateway API, `BackendTLSPolicySpec`).
    pub(crate) fn rank(&mut self, service: &ObjectName, dirty: &mut Dirty) {
        dirty
            .statuses
            .extend(self.policies.accepted(service).cloned());
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
        self.touch_guarded(service, dirty);
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

    /// Marks the AccessPolicies that send requests to a Service, and what they are attached to.
    fn touch_guarded(&self, service: &ObjectName, dirty: &mut Dirty) {
        for key in self.store.attached_by_content(service) {
            dirty.statuses.insert(key.clone());
            let policy = self.store.attached_policy(key);
            let targets = policy.into_iter().flat_map(|policy| &policy.targets);
            dirty
                .uses
                .extend(targets.map(|target| target.object.clone()));
        }
    }

    /// The Services that the AccessPolicies of an object send requests to, and may.
    fn guards(&self, object: &ObjectKey) -> impl Iterator<Item = &ObjectName> {
        let keys = self.store.indexes().attached_by_target(object);
        let policies = keys.filter_map(move |key| self.store.attached_policy(key));
        policies.flat_map(move |policy| {
            let namespace = &policy.meta.name.namespace;
            policy.servers().filter(move |service| {
                self.store
                    .permits_backend(Kind::AccessPolicy, namespace, service)
            })
        })
    }

    /// Updates the Gateways at which a route, or the filters of a Gateway or ListenerSet, refer to
    /// Services with policies: the statuses of the policies name these Gateways. References without
    /// a ReferenceGrant do not count: anybody could have such, at Gateways with names of their
    /// choice.
    pub(crate) fn note_uses(&mut self, key: &ObjectKey, dirty: &mut Dirty) {
        if self.policies.is_empty() {
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
        let policies = self.store.telemetry_policies(&parent.placement.gateway);
        let traces = policies.filter_map(|policy| policy.collector());
        let services = filters
            .filter_map(ListenerFilter::auth)
            .map(|auth| &auth.server.name)
            .chain(collectors.map(|collector| &collector.port.service))
            .chain(traces.map(|collector| &collector.name));
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
    policies: &'a BackendPolicies,
) -> Option<&'a ObjectKey> {
    let place = (service.clone(), kind, Some(name.clone()));
    let of_section = policies.first(&place);
    of_section.or_else(|| policies.first(&(place.0, place.1, None)))
}

/// Marks everything that a route gives to hostnames.
pub(crate) fn touch_units_of(admission: Admission<'_>, key: &RouteKey, dirty: &mut Dirty) {
    let Admission {
        parents,
        attachments,
        ..
    } = admission;
    for (listener, hostname, _) in handed_out(key, attachments.of(key)) {
        if let Some(id) = parents.frontend_of(&listener) {
            attachments.touch_solved(&id, &listener, &hostname, dirty);
            admission.touch_kept(&id, &listener, &hostname, key, dirty);
            dirty.units.insert((id, hostname));
        }
    }
}

/// Marks every host of the listeners of a parent that have filters.
pub(crate) fn touch_filtered(admission: Admission<'_>, key: &ParentKey, dirty: &mut Dirty) {
    touch_listeners(admission, key, dirty, |listener| {
        listener.guard.filters.is_some()
    });
}

/// Marks every host of some listeners of a parent.
pub(crate) fn touch_listeners(
    admission: Admission<'_>,
    key: &ParentKey,
    dirty: &mut Dirty,
    is_meant: impl Fn(&ParentListener) -> bool,
) {
    let Some(parent) = admission.parents.get(key) else {
        return;
    };
    for listener in parent
        .listeners
        .iter()
        .filter(|listener| is_meant(listener))
    {
        let frontend = parent.frontend(listener.transport_port());
        let id = parent.id(listener);
        let kept = admission.kept_under(&id, &listener.hostname);
        let names = admission
            .attachments
            .names_of(&id)
            .cloned()
            .chain(kept)
            .chain([listener.hostname.clone()]);
        dirty
            .units
            .extend(names.map(|name| (frontend.clone(), name)));
    }
}
