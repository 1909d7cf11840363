//! BackendTLSPolicies: the settings of each, and the policy that applies to each Service port.
//!
//! A policy is evaluated by itself when it or a ConfigMap that it refers to changes; then the policies of its target
//! Services are ranked again. The results are the transport of their backends, and the policies' statuses. If a policy
//! cannot be carried out, its Services are refused: no requests are sent to them, least of all in plain text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::admission::Admission;
use super::attachments::handed_out;
use super::backends::Backends;
use super::ca_bundles;
use super::delta::{Resource, ResourceKey};
use super::dirty::Dirty;
use super::emissions::Emissions;
use super::key::{RouteKey, Verdict};
use super::limits::Quotas;
use super::settings::Settings;
use crate::inputs::{BackendTlsPolicy, Kind, LocalRef, ObjectKey, Roots};
use crate::limits::Limits;
use crate::model::{
    Action, AppProtocol, Backend, BackendId, BackendTls, BackendTransport, Cluster, ObjectName, Reason, Rule,
    SecretName, ServicePort, Target, TrustedRoots,
};
use crate::store::{Store, targets};

/// Policies, and their target Services.
#[derive(Default)]
pub(super) struct BackendPolicies {
    judged: BTreeMap<ObjectName, Judged>,
    services: BTreeMap<ObjectName, Targeted>,
    /// The target Services of each route, and the Gateways that it is attached to.
    routes: BTreeMap<RouteKey, Uses>,
}

/// The evaluation of a policy by itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Judged {
    /// Whether the policy can be carried out.
    pub(super) accepted: Verdict,
    /// Whether all its references resolve.
    pub(super) resolved: Verdict,
    /// The TLS settings, without a client certificate; `None` if backends cannot be verified.
    tls: Option<Arc<BackendTls>>,
}

/// A Service that is the target of policies.
#[derive(Default)]
struct Targeted {
    /// The policy of highest precedence, for each port name and for all ports (`None`).
    first: BTreeMap<Option<Arc<str>>, ObjectName>,
    /// The policy that applies to each port.
    ports: BTreeMap<u16, ObjectName>,
    /// The Gateways with routes to the Service, each with the number of these routes.
    gateways: BTreeMap<ObjectName, usize>,
}

/// The targets and Gateways of a route to Services with policies.
#[derive(Clone, Default, PartialEq)]
struct Uses {
    services: BTreeSet<ObjectName>,
    gateways: BTreeSet<ObjectName>,
}

impl BackendPolicies {
    /// Whether a policy applies to a Service port.
    pub(super) fn applies(&self, port: &ServicePort) -> bool {
        self.policy(port).is_some()
    }

    fn policy(&self, port: &ServicePort) -> Option<&ObjectName> {
        self.services.get(&port.service)?.ports.get(&port.port)
    }

    /// The transport of connections to a backend.
    pub(super) fn transport(&self, id: &BackendId) -> BackendTransport {
        let policy = match id.protocol {
            // Forwarded bytes may be TLS already, and datagrams cannot be TLS.
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

    /// The evaluation of a policy by itself.
    pub(super) fn judged(&self, policy: &ObjectName) -> Option<&Judged> {
        self.judged.get(policy)
    }

    /// The policy of highest precedence for a Service, or for a port of it.
    pub(super) fn first(&self, service: &ObjectName, section: &Option<Arc<str>>) -> Option<&ObjectName> {
        self.services.get(service)?.first.get(section)
    }

    /// The Gateways with routes to Services.
    pub(super) fn gateways<'a>(&self, services: impl Iterator<Item = &'a ObjectName>) -> BTreeSet<&ObjectName> {
        services.filter_map(|service| self.services.get(service)).flat_map(|of| of.gateways.keys()).collect()
    }

    /// Sets the targets and Gateways of a route. Returns the Services whose Gateways changed.
    fn set_route(&mut self, key: &RouteKey, new: Uses) -> BTreeSet<ObjectName> {
        let old = self.routes.remove(key).unwrap_or_default();
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
            self.routes.insert(key.clone(), new);
        }
        changed
    }
}

fn object(policy: ObjectName) -> ObjectKey {
    ObjectKey::new(Kind::BackendTLSPolicy, policy)
}

/// Evaluates a policy by itself.
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

/// The usable CA certificates that references lead to, and the error of the first unusable one.
fn bundle(references: &[LocalRef], store: &Store, limits: &Limits) -> (Option<TrustedRoots>, Verdict) {
    let (certificates, verdict) = ca_bundles::union(references, |index, reference, before| {
        let found = ca_bundles::look_up(reference, store, Reason::InvalidKind, |_| Ok(()));
        found
            .and_then(|found| ca_bundles::bundle(before, found, limits).map(|()| found))
            .map_err(|(reason, text)| (reason, format!("validation.caCertificateRefs[{index}]: {text}")))
    });
    (certificates.map(TrustedRoots::Bundle), verdict)
}

/// The stage that evaluates and ranks policies.
pub(super) struct Policing<'a> {
    pub(super) settings: &'a Settings,
    pub(super) store: &'a Store,
    pub(super) quotas: &'a Quotas,
    pub(super) admission: Admission<'a>,
    /// The backends in use.
    pub(super) backends: &'a Backends,
    pub(super) policies: &'a mut BackendPolicies,
}

impl Policing<'_> {
    /// Evaluates a policy by itself, and marks its target Services if the outcome changed.
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

    /// Decides which policies apply to the ports of a Service, and marks the backends and policies that depend on it.
    /// The oldest policy goes first, then the first by name; one for a port precedes one for all (Gateway API,
    /// `BackendTLSPolicySpec`).
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
            dirty.uses.insert(route.clone());
            if is_other {
                touch_units_of(self.admission, route, dirty);
            }
        }
    }

    /// Updates the Gateways of a route that leads to Services with policies: statuses of policies name these Gateways.
    pub(super) fn note_uses(&mut self, key: &RouteKey, dirty: &mut Dirty) {
        let known = &self.policies.services;
        if known.is_empty() && self.policies.routes.is_empty() {
            return;
        }
        let services = self.store.route(key).into_iter().flat_map(|route| targets(route));
        let services: BTreeSet<ObjectName> = services.filter(|of| known.contains_key(*of)).cloned().collect();
        let Admission { parents, attachments, .. } = self.admission;
        let accepted = attachments.of(key).iter().filter(|(.., attachment)| attachment.accepted.is_ok());
        let gateways = accepted.filter_map(|(_, parent, _)| Some(parents.get(parent)?.stand.gateway.clone()));
        let gateways = if services.is_empty() { BTreeSet::new() } else { gateways.collect() };
        for service in self.policies.set_route(key, Uses { services, gateways }) {
            dirty.statuses.extend(self.store.policies_by_service.of(&service).cloned().map(object));
        }
    }
}

/// Marks the units of all hostnames that a route contributes to.
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

impl BackendPolicies {
    /// Adapts a rule to a Gateway with a client certificate: backends with policies get that certificate.
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

    /// The backend for bytes of terminated TLS, with the client certificate of a Gateway that has one.
    pub(super) fn terminated(&self, target: Target, client: Option<&ObjectName>) -> Target {
        match target {
            Target::Backend(id) if self.applies(&id.port) => {
                Target::Backend(BackendId { protocol: AppProtocol::Terminated, client: client.cloned(), ..id })
            }
            other => other,
        }
    }
}

/// Compiles a backend, or removes it if no resource refers to it any more.
pub(super) fn compile_backend(id: BackendId, policies: &BackendPolicies, emissions: &mut Emissions, dirty: &mut Dirty) {
    let is_used = emissions.backends().is_used(&id);
    let backend = is_used.then(|| Backend { transport: policies.transport(&id), id: id.clone() });
    let resource = backend.map(|backend| Resource::Cluster(Cluster::Backend(backend)));
    emissions.emit(ResourceKey::Backend(id), resource, dirty);
}
