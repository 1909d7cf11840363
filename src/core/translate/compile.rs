//! From what listeners and routes say to resources: one unit (frontend, hostname) at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::claims::Family;
use super::delta::{Resource, ResourceKey};
use super::engine::{Dirty, Engine};
use super::key::{ListenerId, RouteKey};
use super::parent::{ParentListener, Protocol};
use super::precedence::{match_rank, route_rank};
use super::resolve::{Resolved, ResolvedRule, resolve};
use super::secret_names::fixed_name;
use crate::inputs::Route as InputRoute;
use crate::model::{
    Action, CertificateSource, Chain, ChainName, Cluster, Frontend, FrontendId, FrontendKind, Handler, Hostname,
    OtherListeners, Redirect, Route, Rule, Scope, SecretName, TableId, Target, Termination, TlsParams, VirtualHost,
    WeightedTarget,
};

impl Engine {
    /// Compiles everything one hostname has on one frontend.
    pub(super) fn compile_unit(&mut self, id: &FrontendId, hostname: &Hostname, dirty: &mut Dirty) {
        self.counters.units += 1;
        let owner = self.frontends.get(id).and_then(|frontend| frontend.owner(hostname));
        let owner = owner.map(|(name, listener, protocol)| Owner {
            hostname: name.clone(),
            listener: listener.clone(),
            protocol,
            is_own: name == hostname,
        });
        let listener = owner.as_ref().and_then(|o| self.listener(&o.listener)).cloned();
        if let Some(owner) = &owner {
            self.note_gateway(&id.gateway, &owner.listener, dirty);
        }
        let ends_tls = |o: &&Owner| o.is_own && o.protocol.terminates();
        let own = owner.as_ref().filter(ends_tls).zip(listener.as_ref());
        // First, since chains depend on who has the name among all frontends.
        self.place_secret(id, hostname, own.map(|(owner, listener)| (&owner.listener, listener)), dirty);
        let own = own.map(|(_, listener)| listener);
        self.place_sans(id, hostname, own, dirty);
        let mut unit = Unit::default();
        let wide = owner.as_ref().filter(|owner| !owner.is_own);
        let is_of_another = wide.is_some_and(|wide| {
            self.is_of_another(id, hostname, &wide.listener) || self.is_of_another_admitted(hostname, &wide.listener)
        });
        if let (Some(owner), Some(listener)) = (&owner, &listener) {
            unit = match owner.protocol {
                // What lies below another's wildcard is kept off by the wildcard.
                _ if is_of_another && !self.is_owned(hostname, &owner.listener) => Unit::default(),
                _ if is_of_another => kept_off(id, hostname, owner.protocol),
                _ if self.is_dark(id, &owner.hostname, owner.protocol, listener) => {
                    Unit { gate: owner.is_own.then(closed), ..Unit::default() }
                }
                Protocol::Http => self.http_unit(id, hostname, owner),
                Protocol::Https => self.https_unit(id, hostname, owner, listener, dirty),
                Protocol::TlsTerminate | Protocol::TlsPassthrough => self.tls_unit(id, hostname, owner, listener),
                Protocol::Tcp => Unit::default(),
            };
        }
        let is_https = owner.as_ref().is_some_and(|owner| owner.protocol == Protocol::Https);
        let is_routed = is_https && !is_of_another && (unit.scope.is_some() || unit.table.is_some());
        self.place_in_table(id, hostname, unit.table, dirty);
        self.place_beneath(id, hostname, owner.as_ref(), is_routed, dirty);
        self.emit(ResourceKey::Scope(id.clone(), hostname.clone()), unit.scope.map(Resource::Scope), dirty);
        self.emit(ResourceKey::SniCluster(id.clone(), hostname.clone()), unit.cluster.map(Resource::Cluster), dirty);
        if let Some(frontend) = self.frontends.get_mut(id)
            && frontend.gate.set(hostname, unit.gate)
        {
            dirty.frontends.insert(id.clone());
        }
    }

    pub(super) fn listener(&self, id: &ListenerId) -> Option<&ParentListener> {
        self.parents.get(&id.parent)?.listener(&id.name)
    }

    /// Whether a chain of the listener would wait for a certificate that is not there. Envoy holds a whole Listener back
    /// until every secret that its chains name has come, and for one that never comes that costs everybody seconds.
    fn is_dark(&self, id: &FrontendId, hostname: &Hostname, protocol: Protocol, listener: &ParentListener) -> bool {
        let is_fixed = || matches!(self.secret_name(id, hostname), SecretName::Fixed(_));
        protocol.terminates() && listener.served.certificate().is_none() && is_fixed()
    }

    fn http_unit(&self, id: &FrontendId, hostname: &Hostname, owner: &Owner) -> Unit {
        let mut routes = self.routes(id, hostname, &owner.listener, None);
        routes.extend(self.behind_solvers(id, hostname, &owner.listener));
        let is_kept = routes.is_empty() && self.is_kept(hostname, owner);
        if is_kept {
            routes = self.wider_routes(id, hostname, &owner.listener);
        }
        let table = (owner.is_own || is_kept || !routes.is_empty())
            .then(|| (None, VirtualHost { hostname: hostname.clone(), routes }));
        Unit { table, ..Unit::default() }
    }

    fn https_unit(
        &self,
        id: &FrontendId,
        hostname: &Hostname,
        owner: &Owner,
        listener: &ParentListener,
        dirty: &mut Dirty,
    ) -> Unit {
        let mut routes = self.routes(id, hostname, &owner.listener, None);
        let is_kept = routes.is_empty() && self.is_kept(hostname, owner);
        if is_kept {
            routes = self.wider_routes(id, hostname, &owner.listener);
        }
        let frontend = &self.frontends[id];
        let wide = !owner.hostname.is_exact();
        let virtual_host = VirtualHost { hostname: hostname.clone(), routes };
        if hostname.is_exact() {
            if !owner.is_own && !is_kept && virtual_host.routes.is_empty() {
                return Unit::default();
            }
            if wide && frontend.is_tabled(&owner.hostname, hostname) {
                return Unit { table: Some((Some(owner.hostname.clone()), virtual_host)), ..Unit::default() };
            }
            let tls = self.termination(id, &owner.hostname, listener);
            let gate = match wide {
                true => hosts_chain(&owner.hostname, tls),
                false => (Arc::from(class_name("https", &tls)), Chain { tls: Some(tls), handler: scopes(None) }),
            };
            let scope = Scope { frontend: id.clone(), listener: Some(owner.hostname.clone()), virtual_host };
            return Unit { scope: Some(scope), gate: Some(gate), ..Unit::default() };
        }
        // A wildcard or empty hostname: its routes are in the listener's table.
        let has_routes = is_kept || !virtual_host.routes.is_empty();
        let mut unit = Unit::default();
        if has_routes {
            unit.table = Some((Some(owner.hostname.clone()), virtual_host));
        }
        if owner.is_own {
            let tables = frontend.tables.get(&Some(hostname.clone()));
            let others = tables.is_some_and(|table| table.keys().any(|name| name != hostname));
            unit.gate = Some(self.wide_chain(id, hostname, listener, has_routes || others));
        } else {
            // Whether the listener needs a table at all may have changed.
            dirty.tables.insert((id.clone(), Some(owner.hostname.clone())));
        }
        unit
    }

    /// The chain of a wildcard or catch-all listener: through its table where it has routes for names that have no
    /// scope, else straight to the scopes.
    pub(super) fn wide_chain(
        &self,
        id: &FrontendId,
        hostname: &Hostname,
        listener: &ParentListener,
        table: bool,
    ) -> (ChainName, Chain) {
        if self.is_dark(id, hostname, Protocol::Https, listener) {
            return closed();
        }
        let tls = self.termination(id, hostname, listener);
        if !table {
            return hosts_chain(hostname, tls);
        }
        let id = TableId { frontend: id.clone(), listener: Some(hostname.clone()) };
        (table_chain_name(hostname), Chain { tls: Some(tls), handler: Handler::Table(id) })
    }

    fn tls_unit(&self, id: &FrontendId, hostname: &Hostname, owner: &Owner, listener: &ParentListener) -> Unit {
        let mut route = self.best_route(hostname, &owner.listener, None);
        let is_kept = route.is_none() && self.is_kept(hostname, owner);
        if is_kept {
            let only = self.kept_for(hostname, &owner.listener);
            let mut wider = hostname.covering().chain([Hostname::any()]);
            route = wider.find_map(|wide| self.best_route(&wide, &owner.listener, only));
        }
        if route.is_none() && !owner.is_own {
            return Unit { gate: is_kept.then(closed), ..Unit::default() };
        }
        let tls = (owner.protocol == Protocol::TlsTerminate).then(|| self.termination(id, &owner.hostname, listener));
        let kind = if tls.is_some() { "tls" } else { "passthrough" };
        let class = match &tls {
            Some(tls) if owner.hostname.is_exact() => class_name(kind, tls),
            Some(_) => format!("{kind}:{}", owner.hostname),
            None => kind.to_owned(),
        };
        let shares = route.map(|route| self.shares(&route)).unwrap_or_default();
        // Requests for this host on connections of others are misdirected, whatever serves it; so are those on a connection
        // that was opened before this listener came.
        let scope = (owner.is_own && hostname.is_exact()).then(|| Scope {
            frontend: id.clone(),
            listener: None,
            virtual_host: VirtualHost { hostname: hostname.clone(), routes: Vec::new() },
        });
        // Without a route the chain finds no cluster for the SNI and resets, which keeps the name from a wider listener.
        let by_sni = hostname.is_exact() && shares.len() <= 1 || shares.is_empty();
        if by_sni {
            let cluster = shares.first().filter(|_| hostname.is_exact()).map(|share| Cluster::Sni {
                frontend: id.clone(),
                hostname: hostname.clone(),
                port: match &share.target {
                    Target::Backend(backend) => Some(backend.port.clone()),
                    Target::Invalid => None,
                },
            });
            let gate = Some((Arc::from(class), Chain { tls, handler: Handler::TcpBySni }));
            return Unit { scope, cluster, gate, ..Unit::default() };
        }
        let name = format!("{class}|{hostname}");
        let gate = Some((Arc::from(name), Chain { tls, handler: Handler::Tcp(shares) }));
        Unit { scope, gate, ..Unit::default() }
    }

    fn shares(&self, route: &RouteKey) -> Vec<WeightedTarget> {
        let rules = self
            .store
            .route(route)
            .map(|route| resolve(route, &self.store, &self.settings.limits).rules)
            .unwrap_or_default();
        match rules.first().map(|rule| &rule.rule.action) {
            Some(Action::Forward(shares)) => shares.iter().filter(|share| share.weight > 0).cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// How TLS ends for a listener.
    fn termination(&self, id: &FrontendId, hostname: &Hostname, listener: &ParentListener) -> Termination {
        let by_sni = hostname.is_exact() && self.secret_name(id, hostname) == SecretName::Sni(hostname.clone());
        let (certificate, params) = if by_sni {
            (CertificateSource::BySni, TlsParams::default())
        } else {
            (CertificateSource::Fixed(fixed_name(id, hostname)), TlsParams::clone(&listener.tls.params))
        };
        Termination { certificate, alpn: listener.tls.alpn.clone(), params }
    }

    /// Puts a frontend together, and forgets one that nobody claims.
    pub(super) fn compile_frontend(&mut self, id: &FrontendId, dirty: &mut Dirty) {
        self.counters.frontends += 1;
        let resource = self.frontend(id);
        self.emit(ResourceKey::Frontend(id.clone()), resource.map(Resource::Frontend), dirty);
        if self.frontends.get(id).is_some_and(|f| f.is_idle() && f.addresses.is_empty()) {
            self.emit(ResourceKey::Table(TableId { frontend: id.clone(), listener: None }), None, dirty);
            self.frontends.remove(id);
        }
    }

    /// The TLS frontends, with every name in their gates where `listed`; else as they are handed out. As much work as there
    /// are hosts: for times in which clients ask for many names that nobody has.
    pub fn tls_frontends(&self, listed: bool) -> Vec<Frontend> {
        let made = self.frontends.iter().filter_map(|(id, state)| {
            let mut frontend = self.frontend(id)?;
            let FrontendKind::Tls { gate, .. } = &mut frontend.kind else { return None };
            if listed {
                gate.clone_from(state.gate.all());
            }
            Some(frontend)
        });
        made.collect()
    }

    fn frontend(&self, id: &FrontendId) -> Option<Frontend> {
        let frontend = self.frontends.get(id)?;
        let is_used = !frontend.winners.is_empty() || frontend.is_plain() && !frontend.challenges.is_empty();
        if frontend.addresses.is_empty() || !is_used || self.rival(id).is_some() {
            return None;
        }
        let kind = match frontend.claims.family() {
            _ if frontend.is_plain() => FrontendKind::Http { table: TableId { frontend: id.clone(), listener: None } },
            None | Some(Family::Http | Family::Tcp) => return None,
            Some(Family::Tls) if frontend.gate.is_empty() => return None,
            Some(Family::Tls) => {
                let chains = frontend.gate.chains().map(|(name, chain)| (name.clone(), frontend.complete(chain)));
                let mut chains: BTreeMap<ChainName, Chain> = chains.collect();
                chains.extend(self.tls_challenges(&chains));
                FrontendKind::Tls { chains, gate: frontend.gate.shown().clone() }
            }
        };
        let (addresses, cdn_id) = (frontend.addresses.clone(), self.behind.cdn_id());
        Some(Frontend { id: id.clone(), addresses, port: frontend.port, cdn_id, kind })
    }

    /// Whether a hostname of routes is kept from a wider listener that would have it.
    fn is_kept(&self, hostname: &Hostname, owner: &Owner) -> bool {
        !owner.is_own && self.kept_for(hostname, &owner.listener).is_some()
    }

    /// The routes that serve a hostname through a listener, in order of precedence; of these the listener's own and those of
    /// one namespace, if there is one.
    pub(super) fn routes(
        &self,
        id: &FrontendId,
        hostname: &Hostname,
        listener: &ListenerId,
        only: Option<&Arc<str>>,
    ) -> Vec<Route> {
        let mut ranked = Vec::new();
        let routes = self.routes_of(hostname, listener, only);
        let resolved: Vec<Resolved> =
            routes.iter().map(|(_, route)| resolve(route, &self.store, &self.settings.limits)).collect();
        for ((own, route), resolved) in routes.into_iter().zip(&resolved) {
            for rule in &resolved.rules {
                for (place, m) in rule.matches.iter().enumerate() {
                    ranked.push((match_rank(own, &route.meta, m, (rule.index, place)), rule, m));
                }
            }
        }
        ranked.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        let tls = self.frontends.get(id).is_some_and(|frontend| frontend.claims.family() == Some(Family::Tls));
        let route = |(_, rule, m): (_, &ResolvedRule, &crate::model::Match)| Route {
            name: rule.name.clone(),
            matches: m.clone(),
            rule: derived(&rule.rule, hostname, id.port, tls),
        };
        let routes: Vec<Route> = ranked.into_iter().map(route).collect();
        let guard = self.escaped_slashes(listener).filter(|_| !routes.is_empty());
        let guard = guard.map(|guard| Route { rule: derived(&guard.rule, hostname, id.port, tls), ..guard });
        guard.into_iter().chain(routes).collect()
    }

    /// The route that takes a hostname whole.
    fn best_route(&self, hostname: &Hostname, listener: &ListenerId, only: Option<&Arc<str>>) -> Option<RouteKey> {
        let all = self.routes_of(hostname, listener, only);
        let (_, best) = all
            .into_iter()
            .min_by(|(a, left), (b, right)| route_rank(a, &left.meta).cmp(&route_rank(b, &right.meta)))?;
        Some(RouteKey { kind: best.kind, name: best.meta.name.clone() })
    }

    /// The routes that give a hostname to a listener, with their own hostnames.
    pub(super) fn contributors(
        &self,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> impl Iterator<Item = &(RouteKey, Hostname)> {
        self.contributions.of(&(listener.clone(), hostname.clone()))
    }

    /// The routes that a hostname gets from a listener, each with the most specific of its own hostnames.
    fn routes_of<'a>(
        &'a self,
        hostname: &'a Hostname,
        listener: &'a ListenerId,
        only: Option<&Arc<str>>,
    ) -> Vec<(&'a Hostname, &'a InputRoute)> {
        let mut best: BTreeMap<&RouteKey, &Hostname> = BTreeMap::new();
        let is_among = |key: &RouteKey| {
            let namespace = &key.name.namespace;
            only.is_none_or(|only| namespace == only || *namespace == listener.parent.name().namespace)
        };
        for (key, own) in self.served(hostname, listener).filter(|(key, _)| is_among(key)) {
            let slot = best.entry(key).or_insert(own);
            if own.precedence(slot).is_lt() {
                *slot = own;
            }
        }
        let found = |(key, own)| {
            self.resolved.get(key).filter(|resolved| resolved.invalid.is_none())?;
            Some((own, &**self.store.route(key)?))
        };
        best.into_iter().filter_map(found).collect()
    }
}

/// Who serves a hostname.
pub(super) struct Owner {
    /// The listener's own hostname.
    pub(super) hostname: Hostname,
    listener: ListenerId,
    protocol: Protocol,
    /// Whether the hostname is the listener's own.
    pub(super) is_own: bool,
}

/// What one hostname has on one frontend.
#[derive(Default)]
struct Unit {
    scope: Option<Scope>,
    table: Option<(Option<Hostname>, VirtualHost)>,
    cluster: Option<Cluster>,
    gate: Option<(ChainName, Chain)>,
}

/// The scopes, with what is said of other listeners when the frontend is put together.
fn scopes(listener: Option<Hostname>) -> Handler {
    Handler::Scopes { listener, elsewhere: OtherListeners::NOWHERE }
}

/// The chain of a wildcard or catch-all listener for hosts that have scopes.
fn hosts_chain(listener: &Hostname, tls: Termination) -> (ChainName, Chain) {
    let name = Arc::from(format!("hosts:{listener}"));
    (name, Chain { tls: Some(tls), handler: scopes(Some(listener.clone())) })
}

/// Name of the chain of a wildcard or catch-all listener for what its table serves.
pub(super) fn table_chain_name(listener: &Hostname) -> ChainName {
    Arc::from(format!("table:{listener}"))
}

/// What keeps a hostname from the wildcard or catch-all listener that would have it.
fn kept_off(id: &FrontendId, hostname: &Hostname, protocol: Protocol) -> Unit {
    let virtual_host = VirtualHost { hostname: hostname.clone(), routes: Vec::new() };
    match protocol {
        Protocol::Http => Unit { table: Some((None, virtual_host)), ..Unit::default() },
        _ => {
            let scope = hostname.is_exact().then(|| Scope { frontend: id.clone(), listener: None, virtual_host });
            Unit { scope, gate: Some(closed()), ..Unit::default() }
        }
    }
}

/// The chain that closes every connection: it keeps a name from wider listeners.
fn closed() -> (ChainName, Chain) {
    (Arc::from("closed"), Chain { tls: None, handler: Handler::Tcp(Vec::new()) })
}

/// Name of the chain that all exact hosts of one class share.
fn class_name(kind: &str, tls: &Termination) -> String {
    let mut name = kind.to_owned();
    let usual: &[&str] = if kind == "https" { &["h2", "http/1.1"] } else { &[] };
    if tls.alpn != usual {
        name = format!("{name}+{}", tls.alpn.join("+"));
    }
    if let CertificateSource::Fixed(secret) = &tls.certificate {
        name = format!("{name}:{secret}");
    }
    name
}

/// Derives the port that a redirect shows (`HTTPRequestRedirectFilter.port`): the one given; else the scheme's own if
/// a scheme is given; else the listener's. The scheme's own port is left out, and where the hostname is known, that of the
/// request's `Host` with it.
fn derived(rule: &Arc<Rule>, hostname: &Hostname, listener: u16, tls: bool) -> Arc<Rule> {
    let Action::Redirect(redirect) = &rule.action else { return rule.clone() };
    let own = match redirect.scheme.as_deref() {
        Some("http") => 80,
        Some("https") => 443,
        _ if tls => 443,
        _ => 80,
    };
    let given = redirect.port.or_else(|| redirect.scheme.is_none().then_some(listener));
    let port = given.filter(|port| *port != own);
    let known = || (port.is_none() && hostname.is_exact()).then(|| hostname.to_string());
    let hostname = redirect.hostname.clone().or_else(known);
    let redirect = Redirect { hostname, port, default_port: own, ..redirect.clone() };
    Arc::new(Rule { action: Action::Redirect(redirect), ..(**rule).clone() })
}
