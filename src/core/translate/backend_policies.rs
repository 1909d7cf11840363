//! BackendTLSPolicies: what each one asks for, and which of them a Service port goes by.
//!
//! A policy is judged by itself when it changes or a ConfigMap that it refers to; then the Services that it is about are
//! ranked anew. What comes of that is the transport of their backends, and the policies' statuses. A policy that cannot be
//! carried out has its Services refused: nothing is sent to them, least of all in plain text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::admission::Admission;
use super::attachments::handed_out;
use super::backends::Backends;
use super::ca_bundles;
use super::delta::{Resource, ResourceKey};
use super::dirty::Dirty;
use super::emissions::Emissions;
use super::key::{ParentKey, RouteKey, Verdict};
use super::limits::Quotas;
use super::settings::Settings;
use crate::inputs::{BackendTlsPolicy, Kind, ListenerFilter, LocalRef, ObjectKey, Roots};
use crate::limits::Limits;
use crate::model::{
    Action, AppProtocol, Backend, BackendId, BackendTls, BackendTransport, Cluster, ExternalAuth, ListenerFilters,
    ObjectName, Reason, Rule, SecretName, ServicePort, Target, TrustedRoots,
};
use crate::store::{Store, targets};

/// Policies, and the Services that they are about.
#[derive(Default)]
pub(super) struct BackendPolicies {
    judged: BTreeMap<ObjectName, Judged>,
    services: BTreeMap<ObjectName, Targeted>,
    /// The Gateways of whatever leads to these Services: routes, and filters of listeners.
    users: BTreeMap<ObjectKey, Uses>,
}

/// A policy by itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Judged {
    /// Whether it can be carried out.
    pub(super) accepted: Verdict,
    /// Whether everything that it refers to is there.
    pub(super) resolved: Verdict,
    /// The verification that it asks for, without a certificate of a client; `None` where nothing can be verified.
    tls: Option<Arc<BackendTls>>,
}

/// A Service that policies are about.
#[derive(Default)]
struct Targeted {
    /// The policy that comes first, for each port name and for all of them (`None`).
    first: BTreeMap<Option<Arc<str>>, ObjectName>,
    /// By which policy each of its ports goes.
    ports: BTreeMap<u16, ObjectName>,
    /// The Gateways of whatever leads to it, each with the number of these.
    gateways: BTreeMap<ObjectName, usize>,
}

/// What leads to Services that policies are about.
#[derive(Clone, Default, PartialEq)]
struct Uses {
    services: BTreeSet<ObjectName>,
    gateways: BTreeSet<ObjectName>,
}

impl BackendPolicies {
    /// Whether a policy says how a Service port is spoken to.
    pub(super) fn applies(&self, port: &ServicePort) -> bool {
        self.policy(port).is_some()
    }

    fn policy(&self, port: &ServicePort) -> Option<&ObjectName> {
        self.services.get(&port.service)?.ports.get(&port.port)
    }

    /// The transport of connections to a backend.
    pub(super) fn transport(&self, id: &BackendId) -> BackendTransport {
        let policy = match id.protocol {
            // Bytes that are passed on as they are may be TLS already, and datagrams are none of it.
            AppProtocol::Tcp | AppProtocol::Udp => None,
            AppProtocol::Http1 | AppProtocol::H2c | AppProtocol::Terminated => self.policy(&id.port),
        };
        let Some(policy) = policy else { return BackendTransport::Plain };
        match (self.judged.get(policy).and_then(|judged| judged.tls.clone()), &id.client) {
            (None, _) => BackendTransport::Refused,
            (Some(tls), None) => BackendTransport::Tls(tls),
            (Some(tls), Some(gateway)) => {
                let client = Some(SecretName::Client(gateway.clone()));
                BackendTransport::Tls(Arc::new(BackendTls { client, ..BackendTls::clone(&tls) }))
            }
        }
    }

    /// A policy by itself.
    pub(super) fn judged(&self, policy: &ObjectName) -> Option<&Judged> {
        self.judged.get(policy)
    }

    /// Which policy comes first at a Service, or at a port of it.
    pub(super) fn first(&self, service: &ObjectName, section: &Option<Arc<str>>) -> Option<&ObjectName> {
        self.services.get(service)?.first.get(section)
    }

    /// The Gateways of what leads to Services.
    pub(super) fn gateways<'a>(&self, services: impl Iterator<Item = &'a ObjectName>) -> BTreeSet<&ObjectName> {
        services.filter_map(|service| self.services.get(service)).flat_map(|of| of.gateways.keys()).collect()
    }

    /// Takes down where a route or a parent leads. Returns the Services whose Gateways are others by it.
    fn set_user(&mut self, key: &ObjectKey, new: Uses) -> BTreeSet<ObjectName> {
        let old = self.users.remove(key).unwrap_or_default();
        let mut changed = BTreeSet::new();
        for (uses, there) in [(&old, false), (&new, true)] {
            let services = uses.services.iter().filter(|_| old != new);
            for (service, gateway) in services.flat_map(|service| uses.gateways.iter().map(move |g| (service, g))) {
                let Some(of) = self.services.get_mut(service) else { continue };
                let count = of.gateways.entry(gateway.clone()).or_default();
                if there {
                    *count += 1;
                } else {
                    *count -= 1;
                }
                if *count == usize::from(there) {
                    changed.insert(service.clone());
                }
                if *count == 0 {
                    of.gateways.remove(gateway);
                }
            }
        }
        if !new.services.is_empty() && !new.gateways.is_empty() {
            self.users.insert(key.clone(), new);
        }
        changed
    }
}

fn object(policy: ObjectName) -> ObjectKey {
    ObjectKey::new(Kind::BackendTLSPolicy, policy)
}

/// Judges a policy by itself.
fn judge(policy: &BackendTlsPolicy, store: &Store, settings: &Settings) -> Judged {
    let refused = |text: String| Judged { accepted: Err((Reason::Invalid, text)), resolved: Ok(()), tls: None };
    let validation = match &policy.validation {
        Ok(validation) => validation,
        Err(text) => return refused(format!("{text}; nothing is sent to its Services")),
    };
    let (roots, resolved) = match (&validation.roots, &settings.system_roots) {
        (Roots::System, Some(file)) => (Some(TrustedRoots::File(file.clone())), Ok(())),
        (Roots::System, None) => {
            return refused(
                "validation.wellKnownCACertificates: the Envoys have no system roots, use caCertificateRefs; nothing is \
                 sent to its Services"
                    .to_owned(),
            );
        }
        (Roots::References(references), _) => bundle(references, store, &settings.limits),
    };
    let Some(roots) = roots else {
        let text = "none of validation.caCertificateRefs can be used; nothing is sent to its Services".to_owned();
        return Judged { accepted: Err((Reason::NoValidCACertificate, text)), resolved, tls: None };
    };
    let (hostname, names) = (validation.hostname.clone(), validation.names.clone());
    let tls = BackendTls { hostname, names, roots, client: None };
    Judged { accepted: Ok(()), resolved, tls: Some(Arc::new(tls)) }
}

/// The certificates that references lead to, of those that can be used, and the first that cannot.
fn bundle(references: &[LocalRef], store: &Store, limits: &Limits) -> (Option<TrustedRoots>, Verdict) {
    let (certificates, verdict) = ca_bundles::union(references, |index, reference, before| {
        let found = ca_bundles::look_up(reference, store, Reason::InvalidKind, |_| Ok(()));
        found
            .and_then(|found| ca_bundles::bundle(before, found, limits).map(|()| found))
            .map_err(|(reason, text)| (reason, format!("validation.caCertificateRefs[{index}]: {text}")))
    });
    (certificates.map(TrustedRoots::Bundle), verdict)
}

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
    pub(super) fn judge(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        let policy = self.store.policy(name);
        let new = policy.map(|policy| match self.quotas.policy_beyond(name, &self.settings.limits) {
            Some(error) => Judged { accepted: Err(error), resolved: Ok(()), tls: None },
            None => judge(policy, self.store, self.settings),
        });
        dirty.statuses.insert(object(name.clone()));
        if self.policies.judged.get(name) == new.as_ref() {
            return;
        }
        let targets = policy.into_iter().flat_map(|policy| &policy.targets);
        dirty.policed.extend(targets.map(|target| target.service.clone()));
        match new {
            Some(new) => drop(self.policies.judged.insert(name.clone(), new)),
            None => drop(self.policies.judged.remove(name)),
        }
    }

    /// Decides which policies the ports of a Service go by, and marks what changes by that. Of several the oldest comes
    /// first, then the first by name; one for a port comes before one for all (Gateway API, `BackendTLSPolicySpec`).
    pub(super) fn rank(&mut self, service: &ObjectName, dirty: &mut Dirty) {
        let policies = self.store.policies_by_service.of(service).filter_map(|name| self.store.policy(name));
        let mut policies: Vec<&Arc<BackendTlsPolicy>> = policies.collect();
        policies.sort_by(|a, b| (a.meta.created, &a.meta.name).cmp(&(b.meta.created, &b.meta.name)));
        dirty.statuses.extend(policies.iter().map(|policy| object(policy.meta.name.clone())));
        dirty.backends.extend(self.backends.of_service(service).cloned());
        let mut first: BTreeMap<Option<Arc<str>>, ObjectName> = BTreeMap::new();
        for policy in policies {
            for target in policy.targets.iter().filter(|target| target.service == *service) {
                first.entry(target.section.clone()).or_insert_with(|| policy.meta.name.clone());
            }
        }
        let of_port = |name: &Arc<str>| first.get(&Some(name.clone())).or(first.get(&None));
        let ports = self.store.service(service).map(|service| service.ports.as_slice()).unwrap_or_default();
        let ports: BTreeMap<u16, ObjectName> =
            ports.iter().filter_map(|port| Some((port.port, of_port(&port.name)?.clone()))).collect();
        let before = self.policies.services.remove(service);
        let was_known = before.is_some();
        let Targeted { ports: had, gateways, .. } = before.unwrap_or_default();
        let is_known = !first.is_empty();
        let is_other = !had.keys().eq(ports.keys());
        if is_known {
            self.policies.services.insert(service.clone(), Targeted { first, ports, gateways });
        }
        if was_known == is_known && !is_other {
            return;
        }
        for route in self.store.routes_by_service.of(service) {
            dirty.uses.insert(route.object());
            if is_other {
                touch_units_of(self.admission, route, dirty);
            }
        }
        for parent in self.store.parents_by_service.of(service) {
            dirty.uses.insert(parent.object());
            if is_other {
                touch_filtered(self.admission, parent, dirty);
            }
        }
    }

    /// Takes down at which Gateways a route or a parent leads to Services with policies; these tell of them.
    pub(super) fn note_uses(&mut self, key: &ObjectKey, dirty: &mut Dirty) {
        if self.policies.services.is_empty() && self.policies.users.is_empty() {
            return;
        }
        let uses = match RouteKey::of(key) {
            Some(route) => self.of_route(&route),
            None => self.of_parent(key),
        };
        for service in self.policies.set_user(key, uses) {
            dirty.statuses.extend(self.store.policies_by_service.of(&service).cloned().map(object));
        }
    }

    fn of_route(&self, key: &RouteKey) -> Uses {
        let services = self.store.route(key).into_iter().flat_map(|route| targets(route));
        let Admission { parents, attachments, .. } = self.admission;
        let accepted = attachments.of(key).iter().filter(|(.., attachment)| attachment.accepted.is_ok());
        let gateways = accepted.filter_map(|(_, parent, _)| Some(parents.get(parent)?.stand.gateway.clone()));
        self.uses(services, gateways)
    }

    /// Whatever its filters name, where it is a Gateway or ListenerSet of ours.
    fn of_parent(&self, key: &ObjectKey) -> Uses {
        let Some(key) = ParentKey::of(key) else { return Uses::default() };
        let Some(parent) = self.admission.parents.get(&key).filter(|parent| parent.accepted.is_ok()) else {
            return Uses::default();
        };
        let filters = self.store.listeners(&key).flat_map(|listener| &listener.filters);
        let services = filters.filter_map(ListenerFilter::auth).map(|auth| &auth.server.name);
        self.uses(services, std::iter::once(parent.stand.gateway.clone()))
    }

    fn uses<'b>(
        &self,
        services: impl Iterator<Item = &'b ObjectName>,
        gateways: impl Iterator<Item = ObjectName>,
    ) -> Uses {
        let services: BTreeSet<ObjectName> =
            services.filter(|of| self.policies.services.contains_key(*of)).cloned().collect();
        let gateways = if services.is_empty() { BTreeSet::new() } else { gateways.collect() };
        Uses { services, gateways }
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

/// Marks every host of the listeners of a parent that have filters.
pub(super) fn touch_filtered(admission: Admission<'_>, key: &ParentKey, dirty: &mut Dirty) {
    let Some(parent) = admission.parents.get(key) else { return };
    for listener in parent.listeners.iter().filter(|listener| listener.guard.filters.is_some()) {
        let (frontend, id) = (parent.frontend(listener.transport_port()), parent.id(listener));
        let kept = admission.kept_under(&id, &listener.hostname);
        let names = admission.attachments.names_of(&id).cloned().chain(kept).chain([listener.hostname.clone()]);
        dirty.units.extend(names.map(|name| (frontend.clone(), name)));
    }
}

impl BackendPolicies {
    /// A rule as it is carried out for a Gateway that has a certificate to show: backends with policies are shown it.
    pub(super) fn with_client(&self, rule: Arc<Rule>, client: Option<&ObjectName>) -> Arc<Rule> {
        let Some(gateway) = client else { return rule };
        let is_shown = |id: &BackendId| self.applies(&id.port);
        let of_action = match &rule.action {
            Action::Forward(shares) => shares.as_slice(),
            Action::Redirect(_) | Action::Respond(_) => &[],
        };
        let mut ids = of_action.iter().filter_map(|share| match &share.target {
            Target::Backend(id) => Some(id),
            Target::Invalid => None,
        });
        let mut others = rule.mirrors.iter().map(|mirror| &mirror.backend);
        let mut auth = rule.auth.iter().map(|auth| &auth.server);
        if !ids.any(is_shown) && !others.any(is_shown) && !auth.any(is_shown) {
            return rule;
        }
        let mut rule = Rule::clone(&rule);
        if let Action::Forward(shares) = &mut rule.action {
            for share in shares {
                if let Target::Backend(id) = &mut share.target
                    && is_shown(id)
                {
                    id.client = Some(gateway.clone());
                }
            }
        }
        for mirror in rule.mirrors.iter_mut().filter(|mirror| is_shown(&mirror.backend)) {
            mirror.backend.client = Some(gateway.clone());
        }
        for auth in rule.auth.iter_mut().filter(|auth| is_shown(&auth.server)) {
            auth.server.client = Some(gateway.clone());
        }
        Arc::new(rule)
    }

    /// The filters of a listener as they are carried out for such a Gateway.
    pub(super) fn filters_with_client(
        &self,
        filters: &Arc<ListenerFilters>,
        client: Option<&ObjectName>,
    ) -> Arc<ListenerFilters> {
        let is_shown = |auth: &ExternalAuth| self.applies(&auth.server.port);
        let (Some(gateway), true) = (client, filters.servers().iter().any(is_shown)) else { return filters.clone() };
        let mut servers = filters.servers().to_vec();
        for auth in servers.iter_mut().filter(|auth| is_shown(auth)) {
            auth.server.client = Some(gateway.clone());
        }
        Arc::new(ListenerFilters::Ask(servers))
    }

    /// The backend of bytes out of TLS that ended here, for a Gateway that may have a certificate to show.
    pub(super) fn terminated(&self, target: Target, client: Option<&ObjectName>) -> Target {
        match target {
            Target::Backend(id) if self.applies(&id.port) => {
                Target::Backend(BackendId { protocol: AppProtocol::Terminated, client: client.cloned(), ..id })
            }
            other => other,
        }
    }
}

/// Makes a backend anew, or takes it back where nothing refers to it any more.
pub(super) fn compile_backend(id: BackendId, policies: &BackendPolicies, emissions: &mut Emissions, dirty: &mut Dirty) {
    let is_used = emissions.backends().is_used(&id);
    let backend = is_used.then(|| Backend { transport: policies.transport(&id), id: id.clone() });
    let resource = backend.map(|backend| Resource::Cluster(Cluster::Backend(backend)));
    emissions.emit(ResourceKey::Backend(id), resource, dirty);
}
