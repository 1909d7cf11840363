//! The cost of a route, Gateway or ListenerSet where it is attached. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::answers;
use super::attachments::{Attachment, Attachments, Contribution, Way, handed_out};
use super::cost_quotas::Counted;
use super::http3::udp_port;
use super::parent::{Parent, ParentListener};
use super::parents::Parents;
use super::policies::Policies;
use super::redirecting_ports;
use super::shared_parts::SharedParts;
use crate::key::{ListenerId, ParentKey, RouteKey};
use crate::rule::backend_reference::Referrer;
use crate::rule::host_option::HostOption;
use crate::rule::protocol::Protocol;
use gatewright_objects::cost::{self, Bytes, Cost};
use gatewright_objects::inputs::{BackendRef, Filters, LocalRef, Route, RouteKind};
use gatewright_objects::model::{
    AppProtocol, BackendId, FrontendId, HashKey, Hostname, ObjectName, ServicePort, Transport,
};
use gatewright_objects::store::Store;

/// The cost of an object, apart from parts that it may share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Charge<P> {
    /// When the object was created.
    pub(crate) created: i64,
    /// The cost of what no other object shares.
    pub(crate) own: Cost,
    /// The parts that it may share with other objects of its namespace, once each, and what each
    /// takes.
    pub(crate) parts: Box<[(P, Cost)]>,
}

impl<P: Ord + Clone> Charge<P> {
    /// The cost with all shared parts.
    pub(crate) fn whole(&self) -> Cost {
        self.own + self.parts.iter().map(|(_, cost)| *cost).sum()
    }

    /// The cost that counts for an object of a namespace: it pays for the shared parts that no
    /// older object has.
    pub(crate) fn counted<K: Ord + Clone>(
        &self,
        namespace: &Arc<str>,
        key: &K,
        shared: &SharedParts<P, K>,
    ) -> Counted {
        let user = (self.created, key.clone());
        let paid = self
            .parts
            .iter()
            .filter(|(part, _)| shared.pays(namespace, part, &user));
        let cost = self.own + paid.map(|(_, cost)| *cost).sum();
        Counted {
            namespace: namespace.clone(),
            created: self.created,
            cost,
            shares: !self.parts.is_empty(),
        }
    }
}

/// The creation time of an object and the parts that it may share; none of an object that is not
/// there.
pub(crate) fn parts<P: Ord + Clone>(charge: Option<&Charge<P>>) -> (i64, BTreeSet<P>) {
    let created = charge.map_or(0, |charge| charge.created);
    (
        created,
        charge
            .into_iter()
            .flat_map(|charge| charge.parts.iter().map(|(part, _)| part.clone()))
            .collect(),
    )
}

/// A cluster of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChargedCluster {
    /// A Service port.
    Backend(BackendId),
    /// The connections or datagrams for a hostname of a listener.
    Hostname(ListenerId, Hostname),
}

/// What a route takes, and why it is too large for itself.
pub(crate) struct Charged {
    pub(crate) charge: Charge<ChargedCluster>,
    pub(crate) too_large: Option<String>,
    /// Its hostnames, and the processor time that a request to one of them may take.
    pub(crate) matching: Matching,
}

/// The hostnames of a route, and the processor time that a request to one of them may take to be
/// compared with its matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Matching {
    pub(crate) hostnames: Box<[Hostname]>,
    /// In nanoseconds.
    pub(crate) time: u64,
    /// The regular expressions of TrafficPolicies that its matches have, for all hostnames at all
    /// listeners.
    pub(crate) of_policies: u64,
}

impl Matching {
    fn of(
        route: &Route,
        attached: &[(Way, ParentKey, Attachment)],
        (time, of_policies): (u64, u64),
    ) -> Self {
        if !route.has_requests() {
            return Self::default();
        }
        let attached = attached.iter();
        let listeners = attached.flat_map(|(.., attachment)| &attachment.listeners);
        let names = listeners.flat_map(|attached| &attached.names);
        let hostnames: BTreeSet<&Hostname> = names.map(|(hostname, _)| hostname).collect();
        Self {
            hostnames: hostnames.into_iter().cloned().collect(),
            time,
            of_policies,
        }
    }

    /// Why it takes too long for itself, if a request may take so many microseconds.
    pub(crate) fn too_long(&self, most: u64) -> Option<String> {
        let time = self.time.div_ceil(1000);
        (time > most).then(|| {
            format!(
                "a request may take {time} microseconds to be compared with its matches, \
                 limits.namespace.matchingMicros is {most}: {}",
                cost::MATCH_LESS
            )
        })
    }
}

impl Charged {
    /// What it takes, if it is served.
    pub(crate) fn served(&self) -> Option<&Charge<ChargedCluster>> {
        Some(&self.charge).filter(|_| self.too_large.is_none())
    }
}

/// The states that decide what a route takes.
#[derive(Clone, Copy)]
pub(crate) struct Charging<'a> {
    pub(crate) parents: &'a Parents,
    pub(crate) attachments: &'a Attachments,
    pub(crate) policies: &'a Policies,
    pub(crate) store: &'a Store,
    /// Endpoints of Services that have many.
    pub(crate) endpoints: &'a BTreeMap<ObjectName, u64>,
}

impl Charging<'_> {
    /// The cost of a route. Envoy has everything of it for each hostname at each listener. What
    /// default Gateways have of it is counted there.
    pub(crate) fn route(self, key: &RouteKey, route: &Route) -> (Charge<ChargedCluster>, Matching) {
        let attachments = self.attachments.of(key);
        let defaults = attachments
            .iter()
            .filter(|(way, ..)| *way == Way::Default)
            .map(|(_, parent, _)| parent);
        let defaults: BTreeSet<&ParentKey> = defaults.collect();
        let all = handed_out(key, attachments);
        let referrer = Referrer::of(route, self.store);
        let services = cost::OfServices {
            session: &|service| self.policies.session(service),
            answers: &|name| answers::size(name, self.store),
            hashes: &|service, port| {
                let port = ServicePort::tcp(service.clone(), port);
                self.policies.hash(&port).is_some()
            },
            is_there: &|backend| {
                let found = referrer.look_up(&backend.target, backend.port, "backendRef");
                found.is_ok()
            },
        };
        let hostname = cost::hostname(route, &services);
        let guard = |(listener, ..): &Contribution| {
            self.parents
                .listener(listener)
                .map_or(Bytes::default(), |l| l.guard.bytes)
                + self.redirects(listener)
        };
        let named = all.iter().filter(|(at, ..)| !defaults.contains(&at.parent));
        let mut servers = BTreeSet::new();
        let mut own = Cost {
            bytes: cost::OBJECT
                + named.map(|one| hostname + guard(one)).sum()
                + self.attached(route, &all, &defaults, &mut servers),
            shared_tables: self.shared_tables(route, &all, hostname),
            ..Cost::default()
        };
        let mut parts = BTreeMap::new();
        if route.has_requests() {
            let clients: BTreeSet<Option<&ObjectName>> = all
                .iter()
                .map(|(at, ..)| self.parents.client_of(at))
                .collect();
            self.forwards(route, &clients, &mut parts);
            for server in servers {
                self.backend(server.port, server.protocol, &clients, &mut parts);
            }
        } else {
            all.iter().for_each(|(listener, name, _)| {
                self.passes_on(route, listener, name, &mut own, &mut parts)
            });
        }
        let charge = Charge {
            created: route.meta.created,
            own,
            parts: parts.into_iter().collect(),
        };
        let matching = (
            cost::matching(route, &services),
            self.expressions(route, &all),
        );
        (charge, Matching::of(route, attachments, matching))
    }

    /// What policies on Gateways, ListenerSets and routes take, for all hostnames. Adds the
    /// Services that AccessPolicies send requests to. Default Gateways count AccessPolicies.
    fn attached(
        self,
        route: &Route,
        all: &BTreeSet<Contribution>,
        defaults: &BTreeSet<&ParentKey>,
        servers: &mut BTreeSet<BackendId>,
    ) -> Bytes {
        if self.policies.guard_nothing() || !route.has_requests() {
            return Bytes::default();
        }
        let each = hostnames(all)
            .into_iter()
            .filter_map(|(listener, hostnames)| {
                let parent = self.parents.get(&listener.parent)?;
                let limits = self
                    .policies
                    .traffic_cost(parent, listener, route, self.attachments);
                let each = if defaults.contains(&listener.parent) {
                    limits
                } else {
                    limits + self.policies.access_cost(parent, listener, route, servers)
                };
                Some(each * hostnames)
            });
        each.sum()
    }

    /// The regular expressions of TrafficPolicies at its matches, for all hostnames.
    fn expressions(self, route: &Route, all: &BTreeSet<Contribution>) -> u64 {
        if self.policies.guard_nothing() || !route.has_requests() {
            return 0;
        }
        let each = hostnames(all)
            .into_iter()
            .filter_map(|(listener, hostnames)| {
                let parent = self.parents.get(&listener.parent)?;
                let of_policies =
                    self.policies
                        .traffic_expressions(parent, listener, route, self.attachments);
                Some(of_policies * hostnames)
            });
        each.sum()
    }

    /// The memory of an Envoy that it takes in tables of other namespaces' listeners, each of whose
    /// hostnames takes so much beside policies: wildcards below a wildcard listener with TLS are in
    /// its table.
    fn shared_tables(self, route: &Route, all: &BTreeSet<Contribution>, hostname: Bytes) -> u64 {
        let wide = all.iter().filter(|(listener, name, _)| {
            let served = self.parents.listener(listener);
            !name.is_exact()
                && listener.parent.name().namespace != route.meta.name.namespace
                && served.and_then(|served| served.protocol) == Some(Protocol::Https)
        });
        let wide: BTreeSet<Contribution> = wide.cloned().collect();
        let (defaults, mut servers) = (BTreeSet::new(), BTreeSet::new());
        let policies = self.attached(route, &wide, &defaults, &mut servers);
        (hostname * wide.len() as u64 + policies).envoy
    }

    /// The memory that a hostname of a listener takes on ports of plain HTTP that redirect it.
    fn redirects(self, listener: &ListenerId) -> Bytes {
        let parent = self.parents.get(&listener.parent);
        let https = parent.filter(|parent| {
            let listener = parent.listener(&listener.name);
            listener.is_some_and(|listener| listener.protocol == Some(Protocol::Https))
        });
        https.map_or(Bytes::default(), |parent| {
            cost::REDIRECTED * redirecting_ports::count(parent, self.parents)
        })
    }

    /// Adds the clusters of a route's backends, mirrors and authorization servers.
    fn forwards(
        self,
        route: &Route,
        clients: &BTreeSet<Option<&ObjectName>>,
        parts: &mut BTreeMap<ChargedCluster, Cost>,
    ) {
        let protocol = if route.kind == RouteKind::Grpc {
            AppProtocol::H2c
        } else {
            AppProtocol::Http1
        };
        for rule in &route.rules {
            let filters = rule.filters.as_ref().ok().and_then(Option::as_deref);
            let targets = rule
                .backends
                .iter()
                .map(|backend| (&backend.target, backend.port));
            for (target, port) in targets.chain(filters.into_iter().flat_map(asked)) {
                let Some(port) = service_port(target, port, Transport::Tcp) else {
                    continue;
                };
                self.backend(port, protocol, clients, parts);
            }
        }
    }

    /// Adds what a hostname takes whose connections or datagrams are passed on.
    fn passes_on(
        self,
        route: &Route,
        listener: &ListenerId,
        name: &Hostname,
        own: &mut Cost,
        parts: &mut BTreeMap<ChargedCluster, Cost>,
    ) {
        let backends = route
            .rules
            .first()
            .map(|rule| rule.backends.as_slice())
            .unwrap_or_default();
        let shares: Vec<&BackendRef> = backends.iter().filter(|share| share.weight > 0).collect();
        let transport = route.kind.transport();
        let ports: Vec<ServicePort> = shares
            .iter()
            .filter_map(|share| service_port(&share.target, share.port, transport))
            .collect();
        let terminates = self
            .parents
            .listener(listener)
            .is_some_and(|l| l.protocol == Some(Protocol::TlsTerminate));
        let is_encrypted = terminates
            && ports
                .iter()
                .any(|port| self.policies.tls_policy(port).is_some());
        let hashes = shares.iter().any(|share| {
            service_port(&share.target, share.port, transport)
                .and_then(|port| self.policies.hash(&port))
                == Some(&HashKey::SourceIp)
        });
        let is_weighted = shares.len() > 1 || is_encrypted || hashes || !name.is_exact();
        if route.kind == RouteKind::Tcp || route.kind == RouteKind::Tls && is_weighted {
            if route.kind == RouteKind::Tls && !shares.is_empty() {
                *own = *own
                    + Cost {
                        bytes: cost::FILTER_CHAIN,
                        filter_chains: 1,
                        ..Cost::default()
                    };
            }
            let protocol = if is_encrypted {
                AppProtocol::Terminated
            } else {
                AppProtocol::Tcp
            };
            let clients = BTreeSet::from([self.parents.client_of(listener)]);
            ports
                .into_iter()
                .for_each(|port| self.backend(port, protocol, &clients, parts));
        } else if !ports.is_empty() {
            let endpoints: u64 = ports.iter().map(|port| self.endpoints(&port.service)).sum();
            let set = ports.iter().map(|port| self.settings(port)).sum();
            let bytes = cost::CLUSTER + cost::ENDPOINT * endpoints + set;
            let cluster = ChargedCluster::Hostname(listener.clone(), name.clone());
            parts.insert(
                cluster,
                Cost {
                    bytes,
                    clusters: 1,
                    ..Cost::default()
                },
            );
        }
    }

    /// Adds the clusters of a Service port: with TLS, one for each client certificate.
    fn backend(
        self,
        port: ServicePort,
        protocol: AppProtocol,
        clients: &BTreeSet<Option<&ObjectName>>,
        parts: &mut BTreeMap<ChargedCluster, Cost>,
    ) {
        let tls = (protocol != AppProtocol::Tcp)
            .then(|| self.policies.tls_policy(&port))
            .flatten();
        let encrypted = tls
            .and_then(|policy| self.policies.tls(policy))
            .map_or(Bytes::default(), cost::tls);
        let script = match protocol {
            AppProtocol::KeySets
            | AppProtocol::KeySetsH2c
            | AppProtocol::Logins
            | AppProtocol::LoginsH2c => cost::SCRIPT,
            _ => Bytes::default(),
        };
        let bytes = cost::CLUSTER
            + script
            + encrypted
            + cost::ENDPOINT * self.endpoints(&port.service)
            + self.settings(&port);
        for client in clients {
            let client = client.filter(|_| tls.is_some() && self.policies.gets_clients(&port));
            let shown = client.map_or(Bytes::default(), |gateway| self.parents.chain_of(gateway));
            let bytes = bytes + shown;
            let id = BackendId {
                client: client.cloned(),
                ..BackendId::new(port.clone(), protocol)
            };
            parts.insert(
                ChargedCluster::Backend(id),
                Cost {
                    bytes,
                    clusters: 1,
                    ..Cost::default()
                },
            );
        }
    }

    /// The memory that the policy of a Service port adds to a cluster.
    fn settings(self, port: &ServicePort) -> Bytes {
        let settings = self.policies.settings(port);
        settings.map_or(Bytes::default(), |(_, settings)| {
            cost::settings(settings, self.endpoints(&port.service))
        })
    }

    fn endpoints(self, service: &ObjectName) -> u64 {
        self.endpoints
            .get(service)
            .copied()
            .unwrap_or(FEW_ENDPOINTS)
    }
}

/// How many hostnames a route has at each listener.
fn hostnames(all: &BTreeSet<Contribution>) -> BTreeMap<&ListenerId, u64> {
    let mut hostnames = BTreeMap::new();
    for (listener, ..) in all {
        *hostnames.entry(listener).or_default() += 1;
    }
    hostnames
}

/// As many endpoints as a Service is counted with that has no more.
const FEW_ENDPOINTS: u64 = 4;

/// The endpoints with which a Service is counted: rounded up, so that the routes to a Service that
/// grows are seldom counted anew. `None` for a few.
pub(crate) fn rounded(endpoints: u64) -> Option<u64> {
    (endpoints > FEW_ENDPOINTS).then(|| endpoints.next_power_of_two())
}

/// The Services that filters send requests to, beside the backends.
fn asked(filters: &Filters) -> impl Iterator<Item = (&LocalRef, Option<u16>)> {
    let mirrors = filters
        .mirrors
        .iter()
        .map(|(target, port, _)| (target, *port));
    mirrors.chain(filters.auth.as_ref().map(|auth| (&auth.server, auth.port)))
}

/// The Service port of a reference that may be one.
fn service_port(target: &LocalRef, port: Option<u16>, transport: Transport) -> Option<ServicePort> {
    target.backend_kind()?;
    ServicePort::referred(&target.name, port, transport)
}

/// The cost of a Gateway or ListenerSet; it may share its ports with others. Each of its ports for
/// HTTP and filter chains takes `observed` for tracing and logs.
pub(crate) fn parent(parent: &Parent, observed: Bytes) -> Charge<FrontendId> {
    let listeners = parent.listeners.iter();
    let wide = listeners
        .clone()
        .filter(|listener| listener.terminates_many())
        .count() as u64;
    let http3 = listeners
        .clone()
        .filter(|listener| listener.http3 == HostOption::On);
    let resumed = listeners
        .clone()
        .filter(|listener| listener.tickets == HostOption::On);
    let chains = wide + http3.clone().chain(resumed.clone()).count() as u64;
    let each = listeners
        .clone()
        .map(|listener| cost::LISTENER + listener.guard.bytes + certificate(listener))
        .sum();
    let of_hosts: Bytes = http3.clone().chain(resumed).map(certificate).sum();
    let own = Cost {
        bytes: cost::OBJECT + each + of_hosts + (cost::FILTER_CHAIN + observed) * chains,
        filter_chains: chains,
        ..Cost::default()
    };
    let port = |listener: &ParentListener| {
        let bytes = match listener.protocol {
            Some(Protocol::Udp) => cost::PORT_UDP,
            Some(Protocol::Tcp) => cost::PORT_TCP,
            _ => cost::PORT_HTTP + observed,
        };
        (
            parent.frontend(listener.transport_port()),
            Cost {
                bytes,
                ..Cost::default()
            },
        )
    };
    let quic = http3.map(|listener| {
        let cost = Cost {
            bytes: cost::PORT_UDP,
            ..Cost::default()
        };
        (parent.frontend(udp_port(listener)), cost)
    });
    let parts: BTreeMap<FrontendId, Cost> = listeners.map(port).chain(quic).collect();
    Charge {
        created: parent.created,
        own,
        parts: parts.into_iter().collect(),
    }
}

/// What the certificate of a listener takes, if it terminates TLS.
fn certificate(listener: &ParentListener) -> Bytes {
    if listener.protocol.is_some_and(Protocol::terminates) {
        cost::served(listener.served.certificate().map(Arc::as_ref))
    } else {
        Bytes::default()
    }
}
