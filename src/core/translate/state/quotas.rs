//! Quotas of namespaces: objects beyond them are not served, and their status says so.
//!
//! Gateways and ListenerSets come first; routes have what these leave of memory and filter chains.
//! So a route never decides whether the Gateway is served to which it is attached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::answers;
use super::attachments::{Attached, Attachment};
use super::charge::{Charge, Charged, ChargedCluster, parent as charge_of, parts, rounded};
use super::cost_quotas::CostQuotas;
use super::dirty::Dirty;
use super::endpoints::ServiceEndpoints;
use super::host_quota::{CountedOption, HostQuota};
use super::parent::Parent;
use super::policies::Policies;
use super::resolutions::Resolved;
use super::shared_parts::SharedParts;
use super::udp_ports::UdpPorts;
use crate::key::{ParentKey, RouteKey};
use crate::rule::allowance::{allowance, beyond};
use crate::rule::gateway_exposure::Fleet;
use crate::rule::settings::Settings;
use gatewright_objects::cost::{self, Bytes, Cost};
use gatewright_objects::inputs::{EndpointSlice, Kind, ObjectKey, Route};
use gatewright_objects::limits::{Limits, NamespaceLimits};
use gatewright_objects::model::{FrontendId, Hostname, ObjectName, Reason, clipped};
use gatewright_objects::quota::{Member, Quota};
use gatewright_objects::store::{Store, targets};

mod external_names;
mod matching;
mod overrides;
mod policies;
mod routes;
mod uses;

use matching::nanoseconds;
pub use uses::QuotaUse;

/// The objects of each namespace that are within its quotas.
pub(crate) struct Quotas {
    limits: Limits,
    /// The limits of namespaces that have others than every namespace.
    overridden: BTreeMap<Arc<str>, NamespaceLimits>,
    /// Routes in the dimensions of the cost model, and what each takes.
    routes: CostQuotas<RouteKey>,
    charges: BTreeMap<RouteKey, Charged>,
    /// Routes that a limit of numbers refuses: they take no memory and no clusters of others.
    refused: BTreeSet<RouteKey>,
    clusters: SharedParts<ChargedCluster, RouteKey>,
    /// Endpoints of Services with more than a few, rounded up.
    endpoints: BTreeMap<ObjectName, u64>,
    /// Gateways and ListenerSets in the dimensions of the cost model, and what each takes.
    parents: CostQuotas<ParentKey>,
    parent_charges: BTreeMap<ParentKey, Charge<FrontendId>>,
    frontends: SharedParts<FrontendId, ParentKey>,
    /// Routes.
    number_of_routes: Quota<Arc<str>, RouteKey>,
    /// Regular expressions of routes that have some.
    regexes: Quota<Arc<str>, RouteKey>,
    /// Processor time of requests to each hostname, in nanoseconds.
    matching: Quota<(Arc<str>, Hostname), (RouteKey, Hostname)>,
    /// Bytes in an Envoy of routes at default Gateways, of which a route's namespace knows nothing:
    /// for each namespace of routes and namespace of Gateways.
    at_defaults: Quota<(Arc<str>, Arc<str>), (RouteKey, ParentKey)>,
    /// Ports of Gateways and ListenerSets.
    ports: Quota<Arc<str>, ParentKey>,
    /// Gateways of fleet Isolated.
    isolated: Quota<Arc<str>, ParentKey>,
    /// Default Gateways.
    defaults: Quota<Arc<str>, ParentKey>,
    udp_ports: UdpPorts,
    http3: HostQuota,
    tickets: HostQuota,
    /// Endpoints of each Service.
    of_service: Quota<ObjectName, ObjectName>,
    /// Endpoints of each namespace.
    of_namespace: Quota<Arc<str>, ObjectName>,
    /// Policies of each kind.
    policies: Quota<(Arc<str>, Kind), ObjectKey>,
    /// Targets of TrafficPolicies with active health checks.
    health_checks: Quota<Arc<str>, ObjectKey>,
    /// Routes that are counted by themselves.
    counted_routes: Quota<Arc<str>, RouteKey>,
    /// Services whose names are resolved.
    external_names: Quota<Arc<str>, ObjectName>,
}

impl Quotas {
    pub(crate) fn new(limits: &Limits) -> Self {
        let allowed = allowance(&limits.namespace);
        Self {
            limits: limits.clone(),
            overridden: BTreeMap::new(),
            routes: CostQuotas::new(allowed),
            charges: BTreeMap::new(),
            refused: BTreeSet::new(),
            clusters: SharedParts::default(),
            endpoints: BTreeMap::new(),
            parents: CostQuotas::new(allowed),
            parent_charges: BTreeMap::new(),
            frontends: SharedParts::default(),
            number_of_routes: Quota::new(limits.namespace.routes),
            regexes: Quota::new(limits.namespace.regexes),
            matching: Quota::new(nanoseconds(limits.namespace.matching_micros)),
            at_defaults: Quota::new(allowed.bytes.envoy),
            ports: Quota::new(limits.namespace.ports),
            isolated: Quota::new(limits.namespace.isolated_gateways),
            defaults: Quota::new(limits.namespace.default_gateways),
            udp_ports: UdpPorts::new(limits),
            http3: HostQuota::new(CountedOption::Http3, limits),
            tickets: HostQuota::new(CountedOption::Tickets, limits),
            of_service: Quota::new(limits.object.service_endpoints),
            of_namespace: Quota::new(limits.namespace.endpoints),
            policies: Quota::new(limits.namespace.policies),
            health_checks: Quota::new(limits.namespace.health_checks),
            counted_routes: Quota::new(limits.namespace.counted_routes),
            external_names: Quota::new(limits.namespace.external_names),
        }
    }

    /// True if the endpoints of a slice are within the quotas.
    pub(crate) fn serves(&self, slice: &EndpointSlice) -> bool {
        self.has_endpoints(&slice.meta.name)
    }

    /// True if the ports of a Gateway or ListenerSet are within the quota of its namespace.
    pub(crate) fn admits_ports_of(&self, key: &ParentKey) -> bool {
        self.ports.has(key) && self.parents.has(key)
    }

    fn has_endpoints(&self, slice: &ObjectName) -> bool {
        self.of_service.has(slice) && self.of_namespace.has(slice)
    }

    /// The limits of a namespace.
    fn limits_of(&self, namespace: &Arc<str>) -> &NamespaceLimits {
        self.overridden
            .get(namespace)
            .unwrap_or(&self.limits.namespace)
    }

    /// What a namespace may have by the cost model.
    pub(crate) fn allowed(&self, namespace: &Arc<str>) -> Cost {
        allowance(self.limits_of(namespace))
    }
}

impl Quotas {
    /// Updates the weight of an object that was put or deleted, and marks the objects whose verdict
    /// changes.
    pub(crate) fn note_extent(
        &mut self,
        key: &ObjectKey,
        store: &Store,
        service_endpoints: &ServiceEndpoints,
        dirty: &mut Dirty,
    ) {
        match key.kind {
            Kind::Namespace => {
                self.note_namespace(&key.name.name, store, service_endpoints, dirty);
            }
            Kind::EndpointSlice => self.note_slice(&key.name, store, service_endpoints, dirty),
            kind if kind.is_policy() => self.note_policy(key, store, dirty),
            _ => {}
        }
    }

    /// Counts a route at a default Gateway, and refuses it there, and only there, if that is too
    /// much.
    pub(crate) fn at_default(
        &mut self,
        route: &Route,
        parent: &Parent,
        (store, policies): (&Store, &Policies),
        attachment: Attachment,
        dirty: &mut Dirty,
    ) -> Attachment {
        let name = &route.meta.name;
        let at = (RouteKey::of_route(route), parent.key.clone());
        let services = cost::OfServices {
            session: &|_| None,
            answers: &|name| answers::size(name, store),
            hashes: &|_, _| false,
            // A Service may go.
            is_there: &|_| false,
        };
        let hostname = cost::hostname(route, &services).envoy;
        let guards = |at: &Attached| {
            parent.listener(&at.listener).map_or(0, |listener| {
                let id = parent.id(listener);
                let access = policies.access_cost(parent, &id, route, &mut BTreeSet::new());
                (listener.guard.bytes + access).envoy
            })
        };
        let bytes = |at: &Attached| {
            guards(at)
                .saturating_add(hostname)
                .saturating_mul(at.names.len() as u64)
        };
        let bytes = attachment
            .listeners
            .iter()
            .map(bytes)
            .fold(0, u64::saturating_add);
        let own = name.namespace.clone();
        let theirs = parent.key.name().namespace.clone();
        let text = format!(
            "the routes of namespace {own} up to this one, the oldest first, exceed at the default Gateways of namespace \
             {theirs} limits.namespace.envoyMib {}",
            self.limits.namespace.envoy_mib
        );
        let member = Member {
            group: (own, theirs),
            created: route.meta.created,
            weight: bytes,
        };
        self.charge_default(&at, (bytes > 0).then_some(member), dirty);
        if self.at_defaults.has(&at) {
            return attachment;
        }
        Attachment {
            listeners: Vec::new(),
            accepted: Err((Reason::LimitReached, text)),
        }
    }

    /// Sets what a route counts for at a default Gateway, and marks the routes whose verdict
    /// changes.
    pub(crate) fn charge_default(
        &mut self,
        at: &(RouteKey, ParentKey),
        member: Option<Member<(Arc<str>, Arc<str>)>>,
        dirty: &mut Dirty,
    ) {
        dirty.attachments.extend(
            self.at_defaults
                .set(at, member)
                .into_iter()
                .map(|(route, _)| route),
        );
    }

    fn note_slice(
        &mut self,
        name: &ObjectName,
        store: &Store,
        service_endpoints: &ServiceEndpoints,
        dirty: &mut Dirty,
    ) {
        let mut of_service = None;
        let mut of_namespace = None;
        if let Some(slice) = store.slice(name)
            && let Some(service) = &slice.service
        {
            let weight = slice.endpoints() as u64;
            let created = slice.meta.created;
            of_service = Some(Member {
                group: service.clone(),
                created,
                weight,
            });
            of_namespace = Some(Member {
                group: name.namespace.clone(),
                created,
                weight,
            });
        }
        let was_served = self.has_endpoints(name);
        let before = self
            .of_service
            .member(name)
            .map(|member| member.group.clone());
        let mut moved = self.of_service.set(name, of_service);
        moved.extend(self.of_namespace.set(name, of_namespace));
        let others = moved
            .iter()
            .filter_map(|slice| store.service_of_slice(slice));
        let mut services: Vec<ObjectName> = others.collect();
        for service in before.iter().chain(store.service_of_slice(name).as_ref()) {
            self.round(service, store, dirty);
        }
        if !was_served || !self.has_endpoints(name) {
            services.extend(before.into_iter().chain(store.service_of_slice(name)));
        }
        for service in services {
            touch_endpoints(&service, store, service_endpoints, dirty);
        }
    }

    /// Takes down how many endpoints a Service has, and marks its routes if that is another order
    /// of magnitude.
    fn round(&mut self, service: &ObjectName, store: &Store, dirty: &mut Dirty) {
        let endpoints = store
            .slices(service)
            .map(|slice| slice.endpoints() as u64)
            .fold(0, u64::saturating_add)
            .saturating_add(self.named_endpoints(service, store));
        let rounded = rounded(endpoints.min(self.limits.object.service_endpoints));
        let before = match rounded {
            Some(rounded) => self.endpoints.insert(service.clone(), rounded),
            None => self.endpoints.remove(service),
        };
        if before != rounded {
            dirty
                .charged
                .extend(store.indexes().routes_by_service(service).cloned());
        }
    }

    /// True if all endpoints of a Service are within the quotas.
    fn is_whole(&self, service: &ObjectName, store: &Store) -> bool {
        store.slices(service).all(|slice| self.serves(slice))
    }

    /// Limits the resolved rules of a route to what a route may have, and to the quota of its
    /// namespace.
    pub(crate) fn limited(
        &self,
        key: &RouteKey,
        route: &Route,
        mut resolved: Resolved,
        store: &Store,
    ) -> Resolved {
        let namespace = &key.name.namespace;
        let limits = self.limits_of(namespace);
        // Also of a route that is invalid: its rules take requests, to answer 500.
        if let Some(text) = self
            .charges
            .get(key)
            .and_then(|charged| charged.too_large.clone())
        {
            resolved.invalid = Some((Reason::LimitReached, text));
            return resolved;
        }
        let exceeded = if !self.number_of_routes.has(key) {
            Some(format!("limits.namespace.routes {}", limits.routes))
        } else if !self.regexes.has(key) {
            let own = self.regexes.member(key).map_or(0, |member| member.weight);
            Some(format!(
                "limits.namespace.regexes {}, this one needs {own}",
                limits.regexes
            ))
        } else if let Some(hostname) = self.slow_hostname(key) {
            Some(format!(
                "limits.namespace.matchingMicros {} at hostname {hostname}, this one needs {}: {}",
                limits.matching_micros,
                self.matching_time(key).div_ceil(1000),
                cost::MATCH_LESS
            ))
        } else if !self.routes.has(key) {
            Some(beyond(
                self.routes.beyond(key),
                self.routes.cost(key),
                self.allowed(namespace),
            ))
        } else {
            None
        };
        if let Some(limits) = exceeded {
            let text = format!(
                "the routes of namespace {namespace} up to this one, the oldest first, exceed {limits}"
            );
            resolved.invalid = Some((Reason::LimitReached, text));
            return resolved;
        }
        if resolved.invalid.is_some() {
            return resolved;
        }
        let mut cut: Vec<String> = targets(route)
            .filter(|service| !self.is_whole(service, store))
            .map(|service| service.to_string())
            .collect();
        cut.sort();
        cut.dedup();
        if !cut.is_empty() {
            let text = format!(
                "Service {}: only its oldest endpoints are used, limits.object.serviceEndpoints is {} and \
                 limits.namespace.endpoints {}",
                cut.join(", "),
                self.limits.object.service_endpoints,
                limits.endpoints
            );
            resolved.partial = Some(clipped(match resolved.partial {
                Some(before) => format!("{before}; {text}"),
                None => text,
            }));
        }
        resolved
    }

    /// Limits a Gateway or ListenerSet to the quota of its namespace; marks the others whose
    /// verdict changes.
    pub(crate) fn within_limits(
        &mut self,
        key: &ParentKey,
        new: Option<Parent>,
        policies: &Policies,
        settings: &Settings,
        dirty: &mut Dirty,
    ) -> Option<Parent> {
        let observed = policies.observed(new.as_ref());
        let mut new = self.within_quotas(key, new, observed, dirty);
        let limits = *self.limits_of(&key.name().namespace);
        self.udp_ports
            .limit(key, new.as_mut(), &limits, settings, dirty);
        for quota in [&mut self.http3, &mut self.tickets] {
            quota.limit(key, new.as_mut(), &limits, settings, dirty);
        }
        new
    }

    fn within_quotas(
        &mut self,
        key: &ParentKey,
        new: Option<Parent>,
        observed: Bytes,
        dirty: &mut Dirty,
    ) -> Option<Parent> {
        let isolated = new.as_ref().filter(|parent| {
            matches!(key, ParentKey::Gateway(_))
                && parent.accepted.is_ok()
                && parent.placement.exposure.fleet == Fleet::Isolated
        });
        let group = || key.name().namespace.clone();
        let isolated = isolated.map(|parent| Member {
            group: group(),
            created: parent.created,
            weight: 1,
        });
        dirty.parents.extend(self.isolated.set(key, isolated));
        self.charge_parent(key, new.as_ref(), observed, dirty);
        let default = new.as_ref().filter(|parent| parent.is_default());
        let default = default.map(|parent| Member {
            group: group(),
            created: parent.created,
            weight: 1,
        });
        dirty.parents.extend(self.defaults.set(key, default));
        let mut new = new?;
        let namespace = &key.name().namespace;
        let limits = *self.limits_of(namespace);
        if new.is_default() && !self.defaults.has(key) {
            let text = format!(
                "spec.defaultScope has no effect: the default Gateways of namespace {} up to this one, the oldest first, exceed \
                 limits.namespace.defaultGateways {}",
                key.name().namespace,
                limits.default_gateways
            );
            new.default = Some(Err((Reason::LimitReached, text)));
        }
        if new.accepted.is_ok() && !self.isolated.has(key) {
            let text = format!(
                "the Gateways of fleet Isolated of namespace {} up to this one, the oldest first, exceed \
                 limits.namespace.isolatedGateways {}",
                key.name().namespace,
                limits.isolated_gateways
            );
            new.accepted = Err((Reason::LimitReached, text));
        }
        let exceeded = if !self.ports.has(key) {
            let own = self.ports.member(key).map_or(0, |member| member.weight);
            Some(format!(
                "limits.namespace.ports {}, this one has {own}",
                limits.ports
            ))
        } else if !self.parents.has(key) {
            Some(beyond(
                self.parents.beyond(key),
                self.parents.cost(key),
                self.allowed(namespace),
            ))
        } else {
            None
        };
        if let (Ok(()), Some(limits)) = (&new.accepted, exceeded) {
            let text = format!(
                "the Gateways and ListenerSets of namespace {namespace} up to this one, the oldest first, exceed {limits}"
            );
            new.accepted = Err((Reason::LimitReached, text));
        }
        Some(new)
    }

    /// Counts the listeners and ports of a Gateway or ListenerSet. One that a number refuses leaves
    /// the others of its namespace its memory.
    fn charge_parent(
        &mut self,
        key: &ParentKey,
        new: Option<&Parent>,
        observed: Bytes,
        dirty: &mut Dirty,
    ) {
        let namespace = &key.name().namespace;
        let ports = new.map(|parent| {
            let ports: BTreeSet<u16> = parent
                .listeners
                .iter()
                .map(|listener| listener.port)
                .collect();
            Member {
                group: namespace.clone(),
                created: parent.created,
                weight: ports.len() as u64,
            }
        });
        dirty.parents.extend(self.ports.set(key, ports));
        let new = new.filter(|_| self.ports.has(key) && self.isolated.has(key));
        let new = new.map(|parent| charge_of(parent, observed));
        if self.parent_charges.get(key) == new.as_ref() {
            return;
        }
        let old = match &new {
            Some(new) => self.parent_charges.insert(key.clone(), new.clone()),
            None => self.parent_charges.remove(key),
        };
        let others =
            self.frontends
                .replace(namespace, parts(old.as_ref()), parts(new.as_ref()), key);
        for parent in others.iter().chain([key]) {
            let charge = self.parent_charges.get(parent);
            let counted = charge.map(|charge| charge.counted(namespace, parent, &self.frontends));
            dirty.parents.extend(self.parents.set(parent, counted));
            if parent != key && !self.parents.has(parent) {
                // Its message says what it needs.
                dirty.parents.insert(parent.clone());
            }
        }
        self.leave_to_routes(namespace, dirty);
    }
}

/// Why an object is beyond a limit of its namespace, of which the oldest objects are within.
fn one_too_many(what: &str, namespace: &str, limit: &str) -> (Reason, String) {
    let text = format!(
        "the {what} of namespace {namespace} up to this one, the oldest first, exceed \
         limits.namespace.{limit}"
    );
    (Reason::LimitReached, text)
}

/// Marks a Service of which other endpoints are within the quotas, and its routes.
fn touch_endpoints(
    service: &ObjectName,
    store: &Store,
    service_endpoints: &ServiceEndpoints,
    dirty: &mut Dirty,
) {
    service_endpoints.touch_endpoints(service, dirty);
    dirty
        .routes
        .extend(store.indexes().routes_by_service(service).cloned());
}

#[cfg(test)]
mod tests;
