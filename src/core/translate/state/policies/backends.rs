//! What policies on Services come to: how backends are connected to and retried, and which sessions
//! stay with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Policies;
use super::judged::Effect;
use crate::rule::experimental;
use crate::state::datagrams;
use gatewright_objects::inputs::{Kind, ObjectKey, PolicyTarget, SessionPersistence};
use gatewright_objects::model::{
    Action, AppProtocol, BackendId, BackendSettings, BackendTls, BackendTransport, ExternalAuth,
    HashKey, ListenerFilters, ObjectName, RequestHash, RetryBudget, Rule, SecretName, ServicePort,
    Target, Transport, TransportPort, WeightedTarget,
};
use gatewright_objects::settings::Access;

/// The Services that policies are about.
#[derive(Default)]
pub(super) struct TargetServices {
    services: BTreeMap<ObjectName, Targeted>,
    /// The Services that ask for endpoints of an Envoy's own zone first.
    zoned: BTreeSet<ObjectName>,
    /// The target Services of each route and of the filters of each Gateway or ListenerSet, and the
    /// Gateways of these.
    users: BTreeMap<ObjectKey, Uses>,
}

/// A Service that is the target of policies.
#[derive(Default)]
struct Targeted {
    /// By which BackendTLSPolicy or XBackend each of its ports goes.
    ports: BTreeMap<u16, ObjectKey>,
    /// The sessions that stay with its endpoints.
    session: Option<SessionPersistence>,
    /// By which TrafficPolicy each of its ports goes, and what that asks for.
    settings: BTreeMap<TransportPort, (ObjectKey, Arc<BackendSettings>)>,
    /// The Gateways with routes or filters that refer to the Service, each with the number of
    /// these.
    gateways: BTreeMap<ObjectName, usize>,
}

/// The TrafficPolicy that a port goes by.
pub(crate) struct RankedPolicy {
    pub(crate) policy: ObjectKey,
    /// True if a check of the port is answered.
    pub(crate) is_checked: bool,
}

/// The changes by another ranking of a Service's policies.
#[derive(Clone, Copy)]
pub(crate) struct Ranked {
    /// True if there are policies where there were none, or the other way round.
    pub(crate) begins_or_ends: bool,
    /// True if what routes to it become is another.
    pub(crate) changes_routes: bool,
    /// True if what clusters of its ports have is another.
    pub(crate) changes_settings: bool,
}

/// The Services with policies that a route, or filters of listeners, refer to, and the Gateways of
/// these.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct Uses {
    pub(crate) services: BTreeSet<ObjectName>,
    pub(crate) gateways: BTreeSet<ObjectName>,
}

impl Policies {
    /// True if a Service port gets the client certificates of Gateways: a BackendTLSPolicy applies
    /// to it. An XBackend says itself whether the client has a certificate.
    pub(crate) fn gets_clients(&self, port: &ServicePort) -> bool {
        self.tls_policy(port)
            .is_some_and(|policy| policy.kind == Kind::BackendTLSPolicy)
    }

    /// The BackendTLSPolicy that a Service port goes by, or the XBackend that is served as it.
    pub(crate) fn tls_policy(&self, port: &ServicePort) -> Option<&ObjectKey> {
        self.target(&port.service)?.ports.get(&port.port)
    }

    fn target(&self, service: &ObjectName) -> Option<&Targeted> {
        self.services.services.get(service)
    }

    /// The transport of connections to a backend.
    pub(crate) fn transport(&self, id: &BackendId) -> BackendTransport {
        let policy = match id.protocol {
            // Forwarded bytes may be TLS already, and datagrams cannot be TLS.
            AppProtocol::Tcp | AppProtocol::Udp => None,
            AppProtocol::Http1
            | AppProtocol::H2c
            | AppProtocol::KeySets
            | AppProtocol::KeySetsH2c
            | AppProtocol::Logins
            | AppProtocol::LoginsH2c
            | AppProtocol::Otlp
            | AppProtocol::Terminated => self.tls_policy(&id.port),
        };
        let Some(policy) = policy else {
            return BackendTransport::Plain;
        };
        match (
            self.get(policy).and_then(|judged| judged.effect.tls()),
            &id.client,
        ) {
            (None, _) => BackendTransport::Refused,
            (Some(tls), None) => BackendTransport::Tls(tls.clone()),
            (Some(tls), Some(gateway)) => {
                let client = Some(SecretName::Client(gateway.clone()));
                BackendTransport::Tls(Arc::new(BackendTls {
                    client,
                    ..BackendTls::clone(tls)
                }))
            }
        }
    }

    /// How many retries a backend is sent.
    pub(crate) fn retries(&self, id: &BackendId) -> Option<RetryBudget> {
        let (AppProtocol::Http1 | AppProtocol::H2c) = id.protocol else {
            return None;
        };
        match self.traffic_of(&id.port.service)? {
            Effect::BackendTraffic { retries, .. } => *retries,
            _ => None,
        }
    }

    /// The TrafficPolicy that a Service port goes by, and what it asks for; of a UDP port what
    /// datagrams go by.
    pub(crate) fn settings(
        &self,
        port: &ServicePort,
    ) -> Option<&(ObjectKey, Arc<BackendSettings>)> {
        let of = TransportPort {
            number: port.port,
            transport: port.transport,
        };
        self.target(&port.service)?.settings.get(&of)
    }

    /// The settings that a TrafficPolicy, and the Service itself, ask for of a target.
    pub(crate) fn settings_of(&self, target: &Target) -> Option<Arc<BackendSettings>> {
        let Target::Backend(id) = target else {
            return None;
        };
        self.settings_at(&id.port)
    }

    /// The settings that a TrafficPolicy, and the Service itself, ask for of a Service port.
    pub(crate) fn settings_at(&self, port: &ServicePort) -> Option<Arc<BackendSettings>> {
        let of_policy = self.settings(port).map(|(_, settings)| settings);
        if !self.prefers_zone(&port.service) {
            return of_policy.cloned();
        }
        let settings = of_policy.map_or_else(BackendSettings::default, |all| (**all).clone());
        Some(Arc::new(BackendSettings {
            prefers_zone: true,
            ..settings
        }))
    }

    /// True if a Service was ranked as one that asks for endpoints of an Envoy's own zone first.
    pub(crate) fn prefers_zone(&self, service: &ObjectName) -> bool {
        self.services.zoned.contains(service)
    }

    /// The key of the hash by which endpoints of a Service port are chosen.
    pub(crate) fn hash(&self, port: &ServicePort) -> Option<&HashKey> {
        let (_, settings) = self.settings(port)?;
        settings.hash()
    }

    /// The effect of the first XBackendTrafficPolicy of a Service.
    fn traffic_of(&self, service: &ObjectName) -> Option<&Effect> {
        let target = PolicyTarget::whole(ObjectKey::new(Kind::Service, service.clone()));
        let mut policies = self.at_level(Kind::XBackendTrafficPolicy, &target);
        policies.next().map(|judged| &judged.effect)
    }

    /// Sets whether a Service is the target of policies, by which BackendTLSPolicy and which
    /// TrafficPolicy each of its ports goes, and whether endpoints of an Envoy's zone come first.
    pub(crate) fn set_ranking(
        &mut self,
        service: &ObjectName,
        is_known: bool,
        ports: BTreeMap<u16, ObjectKey>,
        backends: BTreeMap<TransportPort, RankedPolicy>,
        prefers_zone: bool,
    ) -> Ranked {
        let settings: BTreeMap<TransportPort, (ObjectKey, Arc<BackendSettings>)> = backends
            .into_iter()
            .filter_map(|(port, RankedPolicy { policy, is_checked })| {
                let settings = self.get(&policy)?.effect.settings()?.clone();
                let settings = match port.transport {
                    Transport::Tcp => settings,
                    Transport::Udp => Arc::new(datagrams::settings(&settings, is_checked)),
                };
                Some((port, (policy, settings)))
            })
            .collect();
        let session = self.traffic_of(service).and_then(Effect::session).cloned();
        let TargetServices {
            services, zoned, ..
        } = &mut self.services;
        let before = services.remove(service);
        let was_known = before.is_some();
        let Targeted {
            ports: had,
            session: stayed,
            settings: set,
            gateways,
        } = before.unwrap_or_default();
        let changes_routes = !had.keys().eq(ports.keys())
            || stayed != session
            || !hashes(&set).eq(hashes(&settings));
        let preferred = if prefers_zone {
            !zoned.insert(service.clone())
        } else {
            zoned.remove(service)
        };
        let changes_settings = set != settings || preferred != prefers_zone;
        if is_known {
            services.insert(
                service.clone(),
                Targeted {
                    ports,
                    session,
                    settings,
                    gateways,
                },
            );
        }
        Ranked {
            begins_or_ends: was_known != is_known,
            changes_routes,
            changes_settings,
        }
    }

    /// The sessions that stay with endpoints of a Service.
    pub(crate) fn session(&self, service: &ObjectName) -> Option<&SessionPersistence> {
        self.target(service)?.session.as_ref()
    }

    /// The verification that a BackendTLSPolicy asks for.
    pub(crate) fn tls(&self, policy: &ObjectKey) -> Option<&BackendTls> {
        self.get(policy)?.effect.tls().map(|tls| &**tls)
    }

    /// Returns whether there is neither a Service with policies nor a route or filter that refers
    /// to one.
    pub(crate) fn concern_no_service(&self) -> bool {
        self.services.services.is_empty() && self.services.users.is_empty()
    }

    /// True if policies are about a Service.
    pub(crate) fn knows(&self, service: &ObjectName) -> bool {
        self.target(service).is_some()
    }

    /// The Gateways with routes or filters that refer to Services.
    pub(crate) fn gateways<'a>(
        &self,
        services: impl Iterator<Item = &'a ObjectName>,
    ) -> BTreeSet<&ObjectName> {
        services
            .filter_map(|service| self.target(service))
            .flat_map(|of| of.gateways.keys())
            .collect()
    }

    /// Sets the targets and Gateways of a route, Gateway or ListenerSet. Returns the Services whose
    /// Gateways changed.
    pub(crate) fn set_user(&mut self, key: &ObjectKey, new: Uses) -> BTreeSet<ObjectName> {
        let TargetServices {
            services: targeted,
            users,
            ..
        } = &mut self.services;
        let old = users.remove(key).unwrap_or_default();
        let mut changed = BTreeSet::new();
        for (uses, there) in [(&old, false), (&new, true)] {
            let services = uses.services.iter().filter(|_| old != new);
            for (service, gateway) in
                services.flat_map(|service| uses.gateways.iter().map(move |g| (service, g)))
            {
                let Some(of) = targeted.get_mut(service) else {
                    continue;
                };
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
            users.insert(key.clone(), new);
        }
        changed
    }
}

impl Policies {
    /// A rule with the sessions of its backends, where it has none of its own. `secure` where
    /// cookies are for TLS alone.
    pub(crate) fn with_sessions(&self, rule: Arc<Rule>, secure: bool) -> Arc<Rule> {
        if rule.session.is_some() {
            return rule;
        }
        with_shares(
            rule,
            |id| {
                let BackendId { port, .. } = id;
                let asked = self.session(&port.service)?;
                // Endpoints of another port are others.
                let name = format!("service/{port}");
                Some(Box::new(experimental::served(asked, &name, secure)))
            },
            |share, session| share.session = session,
        )
    }

    /// A rule with the hashes of its backends. `secure` where cookies are for TLS alone.
    pub(crate) fn with_hashes(&self, rule: Arc<Rule>, secure: bool) -> Arc<Rule> {
        with_shares(
            rule,
            |id| {
                let key = self.hash(&id.port)?.clone();
                Some(Box::new(RequestHash { key, secure }))
            },
            |share, hash| share.hash = hash,
        )
    }

    /// The hash of whole connections to a target: those have an address and nothing else.
    pub(crate) fn hash_of_connections(&self, target: &Target) -> Option<Box<RequestHash>> {
        let Target::Backend(id) = target else {
            return None;
        };
        let key = self.hash(&id.port)?;
        (*key == HashKey::SourceIp).then(|| {
            Box::new(RequestHash {
                key: HashKey::SourceIp,
                secure: false,
            })
        })
    }

    /// Adapts a rule to a Gateway with a client certificate: backends with policies get that
    /// certificate.
    pub(crate) fn with_client(&self, rule: Arc<Rule>, client: Option<&ObjectName>) -> Arc<Rule> {
        let Some(gateway) = client else { return rule };
        let is_shown = |id: &BackendId| self.gets_clients(&id.port);
        let of_action = match &rule.action {
            Action::Forward(shares) => shares.as_slice(),
            Action::Redirect(_) | Action::Answer(_) | Action::Respond(_) => &[],
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
        for mirror in rule
            .mirrors
            .iter_mut()
            .filter(|mirror| is_shown(&mirror.backend))
        {
            mirror.backend.client = Some(gateway.clone());
        }
        for auth in rule.auth.iter_mut().filter(|auth| is_shown(&auth.server)) {
            auth.server.client = Some(gateway.clone());
        }
        Arc::new(rule)
    }

    /// The same for an AccessPolicy.
    pub(crate) fn access_with_client(
        &self,
        access: Arc<Access>,
        client: Option<&ObjectName>,
    ) -> Arc<Access> {
        let is_shown = |id: &BackendId| self.gets_clients(&id.port);
        let (Some(gateway), true) = (client, access.servers().any(is_shown)) else {
            return access;
        };
        let mut access = Access::clone(&access);
        for server in access.servers_mut().filter(|server| is_shown(server)) {
            server.client = Some(gateway.clone());
        }
        Arc::new(access)
    }

    /// Adapts the filters of a listener to a Gateway with a client certificate.
    pub(crate) fn filters_with_client(
        &self,
        filters: &Arc<ListenerFilters>,
        client: Option<&ObjectName>,
    ) -> Arc<ListenerFilters> {
        let is_shown = |auth: &ExternalAuth| self.gets_clients(&auth.server.port);
        let (Some(gateway), true) = (client, filters.servers().iter().any(is_shown)) else {
            return filters.clone();
        };
        let mut servers = filters.servers().to_vec();
        for auth in servers.iter_mut().filter(|auth| is_shown(auth)) {
            auth.server.client = Some(gateway.clone());
        }
        Arc::new(ListenerFilters::Ask(servers))
    }

    /// The backend for bytes of terminated TLS, with the client certificate of a Gateway that has
    /// one.
    pub(crate) fn terminated(&self, target: Target, client: Option<&ObjectName>) -> Target {
        match target {
            Target::Backend(id) if self.gets_clients(&id.port) => Target::Backend(BackendId {
                protocol: AppProtocol::Terminated,
                client: client.cloned(),
                ..id
            }),
            other => other,
        }
    }
}

/// A rule whose shares each have what `of` has for their backends; the rule itself where it has
/// nothing for any of them.
fn with_shares<T>(
    rule: Arc<Rule>,
    of: impl Fn(&BackendId) -> Option<T>,
    set: impl Fn(&mut WeightedTarget, Option<T>),
) -> Arc<Rule> {
    let Action::Forward(shares) = &rule.action else {
        return rule;
    };
    let found = shares.iter().map(|share| match &share.target {
        Target::Backend(id) => of(id),
        Target::Invalid => None,
    });
    let found: Vec<Option<T>> = found.collect();
    if found.iter().all(Option::is_none) {
        return rule;
    }
    let mut rule = Rule::clone(&rule);
    if let Action::Forward(shares) = &mut rule.action {
        shares
            .iter_mut()
            .zip(found)
            .for_each(|(share, found)| set(share, found));
    }
    Arc::new(rule)
}

/// The keys of hashes of ports.
fn hashes(
    settings: &BTreeMap<TransportPort, (ObjectKey, Arc<BackendSettings>)>,
) -> impl Iterator<Item = (TransportPort, &HashKey)> {
    settings
        .iter()
        .filter_map(|(port, (_, settings))| Some((*port, settings.hash()?)))
}
