//! Policies as they were judged and ranked, and what comes of them: how backends are connected to and retried, and
//! which sessions stay with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::delta::{Resource, ResourceKey};
use super::dirty::Dirty;
use super::emissions::Emissions;
use super::experimental;
use super::judged_policy::{Effect, Judged};
use crate::inputs::{Kind, ObjectKey, SessionPersistence};
use crate::model::{
    Action, AppProtocol, Backend, BackendId, BackendTls, BackendTransport, Cluster, ExternalAuth, ListenerFilters,
    ObjectName, RetryBudget, Rule, SecretName, ServicePort, Target,
};

/// Policies, and their target Services.
#[derive(Default)]
pub(super) struct BackendPolicies {
    judged: BTreeMap<ObjectKey, Judged>,
    services: BTreeMap<ObjectName, Targeted>,
    /// The target Services of each route and of the filters of each Gateway or ListenerSet, and the Gateways of these.
    users: BTreeMap<ObjectKey, Uses>,
}

/// The policies that come first at a Service: of each kind, for each port name and for all of them (`None`).
pub(super) type First = BTreeMap<(Kind, Option<Arc<str>>), ObjectKey>;

/// A Service that is the target of policies.
#[derive(Default)]
struct Targeted {
    first: First,
    /// By which BackendTLSPolicy each of its ports goes.
    ports: BTreeMap<u16, ObjectKey>,
    /// The sessions that stay with its endpoints.
    session: Option<SessionPersistence>,
    /// The Gateways with routes or filters that refer to the Service, each with the number of these.
    gateways: BTreeMap<ObjectName, usize>,
}

/// The changes by another ranking of a Service's policies.
#[derive(Clone, Copy)]
pub(super) struct Ranked {
    /// True if there are policies where there were none, or the other way round.
    pub(super) begins_or_ends: bool,
    /// True if what routes to it become is another.
    pub(super) changes_routes: bool,
}

/// The Services with policies that a route, or filters of listeners, refer to, and the Gateways of these.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Uses {
    pub(super) services: BTreeSet<ObjectName>,
    pub(super) gateways: BTreeSet<ObjectName>,
}

impl BackendPolicies {
    /// True if a policy applies to a Service port.
    fn applies(&self, port: &ServicePort) -> bool {
        self.tls_policy(port).is_some()
    }

    /// The BackendTLSPolicy that a Service port goes by.
    pub(super) fn tls_policy(&self, port: &ServicePort) -> Option<&ObjectKey> {
        self.services.get(&port.service)?.ports.get(&port.port)
    }

    /// The transport of connections to a backend.
    pub(super) fn transport(&self, id: &BackendId) -> BackendTransport {
        let policy = match id.protocol {
            // Forwarded bytes may be TLS already, and datagrams cannot be TLS.
            AppProtocol::Tcp | AppProtocol::Udp => None,
            AppProtocol::Http1 | AppProtocol::H2c | AppProtocol::Terminated => self.tls_policy(&id.port),
        };
        let Some(policy) = policy else { return BackendTransport::Plain };
        match (self.judged.get(policy).and_then(|judged| judged.effect.tls()), &id.client) {
            (None, _) => BackendTransport::Refused,
            (Some(tls), None) => BackendTransport::Tls(tls.clone()),
            (Some(tls), Some(gateway)) => {
                let client = Some(SecretName::Client(gateway.clone()));
                BackendTransport::Tls(Arc::new(BackendTls { client, ..BackendTls::clone(tls) }))
            }
        }
    }

    /// How many retries a backend is sent.
    fn retries(&self, id: &BackendId) -> Option<RetryBudget> {
        let (AppProtocol::Http1 | AppProtocol::H2c) = id.protocol else { return None };
        match self.traffic(&self.services.get(&id.port.service)?.first)? {
            Effect::Traffic { retries, .. } => *retries,
            Effect::Tls(_) => None,
        }
    }

    /// The effect of the first XBackendTrafficPolicy of a Service.
    fn traffic(&self, first: &First) -> Option<&Effect> {
        let policy = first.get(&(Kind::XBackendTrafficPolicy, None))?;
        Some(&self.judged.get(policy)?.effect)
    }

    /// The evaluation of a policy by itself.
    pub(super) fn judged(&self, policy: &ObjectKey) -> Option<&Judged> {
        self.judged.get(policy)
    }

    /// Sets or removes what a policy is by itself. Whether that is something else.
    pub(super) fn set_judged(&mut self, policy: &ObjectKey, new: Option<Judged>) -> bool {
        if self.judged.get(policy) == new.as_ref() {
            return false;
        }
        match new {
            Some(new) => drop(self.judged.insert(policy.clone(), new)),
            None => drop(self.judged.remove(policy)),
        }
        true
    }

    /// Which policy of a kind comes first at a Service, or at a port of it.
    pub(super) fn first(&self, service: &ObjectName, at: &(Kind, Option<Arc<str>>)) -> Option<&ObjectKey> {
        self.services.get(service)?.first.get(at)
    }

    /// Sets which policies come first at a Service, and by which BackendTLSPolicy each of its ports goes.
    pub(super) fn set_ranking(
        &mut self,
        service: &ObjectName,
        first: First,
        ports: BTreeMap<u16, ObjectKey>,
    ) -> Ranked {
        let session = self.traffic(&first).and_then(Effect::session).cloned();
        let before = self.services.remove(service);
        let (was_known, is_known) = (before.is_some(), !first.is_empty());
        let Targeted { ports: had, session: stayed, gateways, first: _ } = before.unwrap_or_default();
        let changes_routes = !had.keys().eq(ports.keys()) || stayed != session;
        if is_known {
            self.services.insert(service.clone(), Targeted { first, ports, session, gateways });
        }
        Ranked { begins_or_ends: was_known != is_known, changes_routes }
    }

    /// Returns whether there is neither a Service with policies nor a route or filter that refers to one.
    pub(super) fn is_empty(&self) -> bool {
        self.services.is_empty() && self.users.is_empty()
    }

    /// True if policies are about a Service.
    pub(super) fn knows(&self, service: &ObjectName) -> bool {
        self.services.contains_key(service)
    }

    /// The Gateways with routes or filters that refer to Services.
    pub(super) fn gateways<'a>(&self, services: impl Iterator<Item = &'a ObjectName>) -> BTreeSet<&ObjectName> {
        services.filter_map(|service| self.services.get(service)).flat_map(|of| of.gateways.keys()).collect()
    }

    /// Sets the targets and Gateways of a route, Gateway or ListenerSet. Returns the Services whose Gateways changed.
    pub(super) fn set_user(&mut self, key: &ObjectKey, new: Uses) -> BTreeSet<ObjectName> {
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

impl BackendPolicies {
    /// A rule with the sessions of its backends, where it has none of its own. `secure` where cookies are for TLS
    /// alone.
    pub(super) fn with_sessions(&self, rule: Arc<Rule>, secure: bool) -> Arc<Rule> {
        let (None, Action::Forward(shares)) = (&rule.session, &rule.action) else { return rule };
        let session = |target: &Target| {
            let Target::Backend(BackendId { port, .. }) = target else { return None };
            let asked = self.services.get(&port.service)?.session.as_ref()?;
            // Endpoints of another port are others.
            Some(Box::new(experimental::served(asked, &format!("service/{port}"), secure)))
        };
        let sessions: Vec<_> = shares.iter().map(|share| session(&share.target)).collect();
        if sessions.iter().all(Option::is_none) {
            return rule;
        }
        let mut rule = Rule::clone(&rule);
        if let Action::Forward(shares) = &mut rule.action {
            shares.iter_mut().zip(sessions).for_each(|(share, session)| share.session = session);
        }
        Arc::new(rule)
    }

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

    /// Adapts the filters of a listener to a Gateway with a client certificate.
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
    let made = || Backend { transport: policies.transport(&id), retries: policies.retries(&id), id: id.clone() };
    let resource = is_used.then(made).map(|backend| Resource::Cluster(Cluster::Backend(backend)));
    emissions.emit(ResourceKey::Backend(id), resource, dirty);
}
