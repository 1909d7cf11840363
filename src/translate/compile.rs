//! From what listeners and routes say to resources: one unit (frontend, hostname) at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;

use super::claims::Family;
use super::delta::{Resource, ResourceKey};
use super::engine::{Dirty, Engine};
use super::key::{ListenerId, RouteKey};
use super::parent::{ParentListener, Protocol};
use super::precedence::{match_rank, route_rank};
use crate::inputs::Route as InputRoute;
use crate::model::{
    Action, BackendId, CertificateSource, Chain, ChainName, Cluster, Endpoints, Frontend, FrontendId, FrontendKind,
    Handler, Hostname, Others, Redirect, Route, Rule, Scope, Secret, SecretName, ServicePort, Table, TableId, Target,
    Termination, TlsParams, VirtualHost, WeightedTarget,
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
        let ends_tls = |o: &&Owner| o.is_own && o.protocol.terminates();
        let own = owner.as_ref().filter(ends_tls).zip(listener.as_ref());
        // First, since chains depend on who has the name among all frontends.
        self.place_secret(id, hostname, own.map(|(_, listener)| listener), dirty);
        let mut unit = Unit::default();
        if let (Some(owner), Some(listener)) = (&owner, &listener) {
            unit = match owner.protocol {
                Protocol::Http => self.http_unit(id, hostname, owner),
                Protocol::Https => self.https_unit(id, hostname, owner, listener, dirty),
                Protocol::TlsTerminate | Protocol::TlsPassthrough => self.tls_unit(id, hostname, owner, listener),
            };
        }
        self.place_in_table(id, hostname, unit.table, dirty);
        self.place_scope_under(id, hostname, owner.as_ref(), unit.scope.is_some(), dirty);
        self.emit(ResourceKey::Scope(id.clone(), hostname.clone()), unit.scope.map(Resource::Scope), dirty);
        self.emit(ResourceKey::SniCluster(id.clone(), hostname.clone()), unit.cluster.map(Resource::Cluster), dirty);
        if let Some(frontend) = self.frontends.get_mut(id)
            && frontend.gate.set(hostname, unit.gate)
        {
            dirty.frontends.insert(id.clone());
        }
    }

    fn listener(&self, id: &ListenerId) -> Option<&ParentListener> {
        self.parents.get(&id.parent)?.listener(&id.name)
    }

    fn http_unit(&self, id: &FrontendId, hostname: &Hostname, owner: &Owner) -> Unit {
        let routes = self.routes(id, hostname, &owner.listener);
        let table =
            (owner.is_own || !routes.is_empty()).then(|| (None, VirtualHost { hostname: hostname.clone(), routes }));
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
        let routes = self.routes(id, hostname, &owner.listener);
        let frontend = &self.frontends[id];
        let wide = !owner.hostname.is_exact();
        let virtual_host = VirtualHost { hostname: hostname.clone(), routes };
        if hostname.is_exact() {
            if !owner.is_own && virtual_host.routes.is_empty() {
                return Unit::default();
            }
            // Under a wildcard certificate clients may reuse a connection for a sibling: 421 sends them to its own.
            let alone = !wide && frontend.winners.len() == 1;
            let others = if alone { Others::NotFound } else { Others::Misdirected };
            let tls = self.termination(id, &owner.hostname, listener);
            let name = if wide { format!("hosts:{}", owner.hostname) } else { class_name("https", &tls) };
            return Unit {
                scope: Some(Scope { frontend: id.clone(), virtual_host, others }),
                gate: Some((Arc::from(name), Chain { tls: Some(tls), handler: Handler::Scopes })),
                ..Unit::default()
            };
        }
        // A wildcard or empty hostname: its routes are in the listener's table.
        let has_routes = !virtual_host.routes.is_empty();
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
        let tls = Some(self.termination(id, hostname, listener));
        let (name, handler) = if table {
            let id = TableId { frontend: id.clone(), listener: Some(hostname.clone()) };
            (format!("table:{hostname}"), Handler::Table(id))
        } else {
            (format!("hosts:{hostname}"), Handler::Scopes)
        };
        (Arc::from(name), Chain { tls, handler })
    }

    fn tls_unit(&self, id: &FrontendId, hostname: &Hostname, owner: &Owner, listener: &ParentListener) -> Unit {
        let route = self.best_route(hostname, &owner.listener);
        if route.is_none() && !owner.is_own {
            return Unit::default();
        }
        let tls = (owner.protocol == Protocol::TlsTerminate).then(|| self.termination(id, &owner.hostname, listener));
        let kind = if tls.is_some() { "tls" } else { "passthrough" };
        let class = match &tls {
            Some(tls) if owner.hostname.is_exact() => class_name(kind, tls),
            Some(_) => format!("{kind}:{}", owner.hostname),
            None => kind.to_owned(),
        };
        let shares = route.map(|route| self.shares(&route)).unwrap_or_default();
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
            return Unit { cluster, gate, ..Unit::default() };
        }
        let name = format!("{class}|{hostname}");
        Unit { gate: Some((Arc::from(name), Chain { tls, handler: Handler::Tcp(shares) })), ..Unit::default() }
    }

    fn shares(&self, route: &RouteKey) -> Vec<WeightedTarget> {
        let rules = self.resolved.get(route).map(|resolved| resolved.rules.as_slice()).unwrap_or_default();
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
            (CertificateSource::Fixed(fixed_name(id, hostname)), listener.params.clone())
        };
        Termination { certificate, alpn: listener.alpn.clone(), params }
    }

    /// Under which name a listener's certificate is asked for. Secrets asked for by SNI are common to all frontends of
    /// an Envoy: where two frontends have different certificates for one name, the first keeps the name.
    fn secret_name(&self, id: &FrontendId, hostname: &Hostname) -> SecretName {
        if !hostname.is_exact() {
            return fixed_name(id, hostname);
        }
        match self.sni.get(hostname).and_then(|claims| claims.first_key_value().map(|first| (first, claims.get(id)))) {
            Some(((first, content), own)) if first != id && own != Some(content) => fixed_name(id, hostname),
            _ => SecretName::Sni(hostname.clone()),
        }
    }

    fn place_secret(&mut self, id: &FrontendId, hostname: &Hostname, own: Option<&ParentListener>, dirty: &mut Dirty) {
        let content = own.map(|listener| (listener.served.certificate().cloned(), listener.params.clone()));
        if hostname.is_exact() {
            let claims = self.sni.entry(hostname.clone()).or_default();
            let before = claims.get(id).cloned();
            match &content {
                Some(content) => claims.insert(id.clone(), content.clone()),
                None => claims.remove(id),
            };
            let others: Vec<FrontendId> = claims.keys().filter(|other| *other != id).cloned().collect();
            if claims.is_empty() {
                self.sni.remove(hostname);
            }
            if before != content {
                // Others may now share the name, or no longer.
                dirty.units.extend(others.into_iter().map(|other| (other, hostname.clone())));
            }
            let first = self.sni.get(hostname).and_then(|claims| claims.first_key_value()).map(|(_, c)| c.clone());
            let shared = first.and_then(|(certificate, params)| {
                Some(secret(SecretName::Sni(hostname.clone()), certificate?, params))
            });
            self.emit(ResourceKey::Secret(SecretName::Sni(hostname.clone())), shared, dirty);
        }
        let fixed = fixed_name(id, hostname);
        let uses_fixed = content.is_some() && self.secret_name(id, hostname) == fixed;
        let held = content.filter(|_| uses_fixed).and_then(|(certificate, _)| certificate);
        let resource = held.map(|certificate| secret(fixed.clone(), certificate, TlsParams::default()));
        self.emit(ResourceKey::Secret(fixed), resource, dirty);
    }

    fn place_in_table(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        entry: Option<(Option<Hostname>, VirtualHost)>,
        dirty: &mut Dirty,
    ) {
        let Some(frontend) = self.frontends.get_mut(id) else { return };
        let place = entry.as_ref().map(|(place, _)| place.clone());
        let before = match &place {
            Some(place) => frontend.placed.insert(hostname.clone(), place.clone()),
            None => frontend.placed.remove(hostname),
        };
        if let Some(old) = before.filter(|old| place.as_ref() != Some(old)) {
            if let Some(table) = frontend.tables.get_mut(&old) {
                table.remove(hostname);
                if table.is_empty() {
                    frontend.tables.remove(&old);
                }
            }
            dirty.tables.insert((id.clone(), old));
        }
        if let Some((place, virtual_host)) = entry {
            let table = frontend.tables.entry(place.clone()).or_default();
            if table.get(hostname) != Some(&virtual_host) {
                table.insert(hostname.clone(), virtual_host);
                dirty.tables.insert((id.clone(), place));
            }
        }
    }

    fn place_scope_under(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        owner: Option<&Owner>,
        there: bool,
        dirty: &mut Dirty,
    ) {
        let Some(frontend) = self.frontends.get_mut(id) else { return };
        if !hostname.is_exact() {
            return;
        }
        let wide = owner.filter(|o| there && !o.is_own).map(|o| o.hostname.clone());
        for (name, names) in &mut frontend.scoped {
            if Some(name) != wide.as_ref() && names.remove(hostname) {
                dirty.tables.insert((id.clone(), Some(name.clone())));
            }
        }
        frontend.scoped.retain(|_, names| !names.is_empty());
        if let Some(wide) = wide
            && frontend.scoped.entry(wide.clone()).or_default().insert(hostname.clone())
        {
            dirty.tables.insert((id.clone(), Some(wide)));
        }
    }

    /// Marks the tables of wildcard and catch-all listeners that cover a hostname: they answer 421 for it.
    pub(super) fn touch_tables_over(&self, id: &FrontendId, hostname: &Hostname, dirty: &mut Dirty) {
        let frontend = &self.frontends[id];
        for wide in hostname.covering().chain(Some(Hostname::any())) {
            if frontend.tables.contains_key(&Some(wide.clone())) {
                dirty.tables.insert((id.clone(), Some(wide)));
            }
        }
    }

    /// Puts a table together.
    pub(super) fn compile_table(&mut self, id: &FrontendId, listener: Option<&Hostname>, dirty: &mut Dirty) {
        self.counters.tables += 1;
        let table_id = TableId { frontend: id.clone(), listener: listener.cloned() };
        let resource = self.table(&table_id);
        if let Some(hostname) = listener {
            self.regate(id, hostname, resource.is_some(), dirty);
        }
        self.emit(ResourceKey::Table(table_id), resource.map(Resource::Table), dirty);
    }

    fn table(&self, table: &TableId) -> Option<Table> {
        let frontend = self.frontends.get(&table.frontend)?;
        let hosts = frontend.tables.get(&table.listener);
        let Some(wide) = &table.listener else {
            let plain = frontend.claims.family() == Some(Family::Http);
            return plain.then(|| Table {
                id: table.clone(),
                virtual_hosts: hosts.into_iter().flat_map(BTreeMap::values).cloned().collect(),
                misdirected: Vec::new(),
                others: Others::NotFound,
                plain_http: true,
                thumbprint: None,
            });
        };
        let mut virtual_hosts: Vec<VirtualHost> = hosts?.values().cloned().collect();
        if !hosts?.contains_key(wide) {
            virtual_hosts.insert(0, VirtualHost { hostname: wide.clone(), routes: Vec::new() });
        }
        let beneath = frontend.winners.keys().filter(|name| *name != wide && wide.covers(name));
        let scoped = frontend.scoped.get(wide).into_iter().flatten();
        let misdirected: BTreeSet<Hostname> = beneath.chain(scoped).cloned().collect();
        virtual_hosts.retain(|host| !misdirected.contains(&host.hostname));
        let others = if frontend.winners.len() > 1 { Others::Misdirected } else { Others::NotFound };
        Some(Table {
            id: table.clone(),
            virtual_hosts,
            misdirected: misdirected.into_iter().collect(),
            others,
            plain_http: false,
            thumbprint: None,
        })
    }

    /// Sends a wildcard or catch-all listener's connections to its table, or past it.
    fn regate(&mut self, id: &FrontendId, hostname: &Hostname, table: bool, dirty: &mut Dirty) {
        let Some(frontend) = self.frontends.get(id) else { return };
        let Some((listener, Protocol::Https)) = frontend.winners.get(hostname) else { return };
        let Some(listener) = self.listener(listener) else { return };
        let chain = self.wide_chain(id, hostname, listener, table);
        let frontend = self.frontends.get_mut(id).expect("found above");
        if frontend.gate.set(hostname, Some(chain)) {
            dirty.frontends.insert(id.clone());
        }
    }

    /// Puts a frontend together, and forgets one that nobody claims.
    pub(super) fn compile_frontend(&mut self, id: &FrontendId, dirty: &mut Dirty) {
        self.counters.frontends += 1;
        let resource = self.frontend(id);
        self.emit(ResourceKey::Frontend(id.clone()), resource.map(Resource::Frontend), dirty);
        if self.frontends.get(id).is_some_and(|f| f.claims.is_empty() && f.addresses.is_empty()) {
            self.emit(ResourceKey::Table(TableId { frontend: id.clone(), listener: None }), None, dirty);
            self.frontends.remove(id);
        }
    }

    fn frontend(&self, id: &FrontendId) -> Option<Frontend> {
        let frontend = self.frontends.get(id)?;
        if frontend.addresses.is_empty() || frontend.winners.is_empty() || self.rival(id).is_some() {
            return None;
        }
        let kind = match frontend.claims.family()? {
            Family::Http => FrontendKind::Http { table: TableId { frontend: id.clone(), listener: None } },
            Family::Tls if frontend.gate.is_empty() => return None,
            Family::Tls => FrontendKind::Tls {
                chains: frontend.gate.chains().map(|(name, chain)| (name.clone(), chain.clone())).collect(),
                gate: frontend.gate.shown().clone(),
            },
        };
        Some(Frontend { id: id.clone(), addresses: frontend.addresses.clone(), kind })
    }

    /// Looks up the ready addresses of a Service port that something refers to.
    pub(super) fn compile_endpoints(&mut self, port: &ServicePort, dirty: &mut Dirty) {
        let resource = self.ports.contains_key(port).then(|| Resource::Endpoints(self.endpoints(port)));
        self.emit(ResourceKey::Endpoints(port.clone()), resource, dirty);
    }

    fn endpoints(&self, port: &ServicePort) -> Endpoints {
        let service = self.store.service(&port.service);
        let name = service.and_then(|s| s.ports.iter().find(|p| p.port == port.port)).map(|p| p.name.clone());
        let mut addresses = BTreeSet::new();
        if let Some(name) = name {
            for slice in self.store.slices(&port.service) {
                for (_, number) in slice.ports.iter().filter(|(n, _)| *n == name) {
                    addresses.extend(slice.addresses.iter().map(|ip| SocketAddr::new(*ip, *number)));
                }
            }
        }
        Endpoints { port: port.clone(), addresses: addresses.into_iter().collect() }
    }

    /// The routes that serve a hostname through a listener, in order of precedence.
    fn routes(&self, id: &FrontendId, hostname: &Hostname, listener: &ListenerId) -> Vec<Route> {
        let mut ranked = Vec::new();
        for (own, route, resolved) in self.contributors(hostname, listener) {
            for rule in &resolved.rules {
                for (place, m) in rule.matches.iter().enumerate() {
                    ranked.push((match_rank(own, &route.meta, m, (rule.index, place)), rule, m));
                }
            }
        }
        ranked.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        let tls = self.frontends.get(id).is_some_and(|frontend| frontend.claims.family() == Some(Family::Tls));
        let route = |(_, rule, m): (_, &super::resolve::ResolvedRule, &crate::model::Match)| Route {
            name: rule.name.clone(),
            matches: m.clone(),
            rule: derive_port(&rule.rule, id.port, tls),
        };
        ranked.into_iter().map(route).collect()
    }

    /// The route that takes a hostname whole.
    fn best_route(&self, hostname: &Hostname, listener: &ListenerId) -> Option<RouteKey> {
        let all = self.contributors(hostname, listener);
        let (_, best, _) = all
            .into_iter()
            .min_by(|(a, left, _), (b, right, _)| route_rank(a, &left.meta).cmp(&route_rank(b, &right.meta)))?;
        Some(RouteKey { kind: best.kind, name: best.meta.name.clone() })
    }

    /// The routes that a hostname gets from a listener, each with the most specific of its own hostnames.
    fn contributors(
        &self,
        hostname: &Hostname,
        listener: &ListenerId,
    ) -> Vec<(&Hostname, &InputRoute, &super::resolve::Resolved)> {
        let entries = self.contributions.get(listener).and_then(|names| names.get(hostname));
        let mut best: BTreeMap<&RouteKey, &Hostname> = BTreeMap::new();
        for (key, own) in entries.into_iter().flatten() {
            let slot = best.entry(key).or_insert(own);
            if own.precedence(slot).is_lt() {
                *slot = own;
            }
        }
        let found = |(key, own)| {
            let resolved = self.resolved.get(key).filter(|resolved| resolved.invalid.is_none())?;
            Some((own, &**self.store.route(key)?, resolved))
        };
        best.into_iter().filter_map(found).collect()
    }

    /// Hands out a resource, or takes it back, where that changes anything; keeps count of the backends it uses.
    fn emit(&mut self, key: ResourceKey, resource: Option<Resource>, dirty: &mut Dirty) {
        let hash = resource.as_ref().map(fingerprint);
        if self.emitted.get(&key).copied() == hash {
            return;
        }
        match hash {
            Some(hash) => self.emitted.insert(key.clone(), hash),
            None => self.emitted.remove(&key),
        };
        let used = resource.as_ref().map(backends).unwrap_or_default();
        let before = if used.is_empty() { self.uses.remove(&key) } else { self.uses.insert(key.clone(), used.clone()) };
        let before = before.unwrap_or_default();
        for id in used.difference(&before) {
            let count = self.backends.entry(id.clone()).or_insert(0);
            *count += 1;
            if *count == 1 {
                self.emit(
                    ResourceKey::Backend(id.clone()),
                    Some(Resource::Cluster(Cluster::Backend(id.clone()))),
                    dirty,
                );
            }
        }
        for id in before.difference(&used) {
            let count = self.backends.get_mut(id).expect("counted when it was used");
            *count -= 1;
            if *count == 0 {
                self.backends.remove(id);
                self.emit(ResourceKey::Backend(id.clone()), None, dirty);
            }
        }
        match &key {
            ResourceKey::Backend(id) => self.count_port(&id.port, resource.is_some(), dirty),
            ResourceKey::SniCluster(..) => self.count_sni_port(&key, resource.as_ref(), dirty),
            _ => {}
        }
        dirty.delta.resources.insert(key, resource);
    }

    fn count_sni_port(&mut self, key: &ResourceKey, resource: Option<&Resource>, dirty: &mut Dirty) {
        let new = match resource {
            Some(Resource::Cluster(Cluster::Sni { port, .. })) => port.clone(),
            _ => None,
        };
        let old = match &new {
            Some(port) => self.sni_ports.insert(key.clone(), port.clone()),
            None => self.sni_ports.remove(key),
        };
        if old != new {
            if let Some(new) = new {
                self.count_port(&new, true, dirty);
            }
            if let Some(old) = old {
                self.count_port(&old, false, dirty);
            }
        }
    }

    fn count_port(&mut self, port: &ServicePort, used: bool, dirty: &mut Dirty) {
        let count = self.ports.entry(port.clone()).or_insert(0);
        if used {
            *count += 1
        } else {
            *count -= 1
        }
        if *count == 0 {
            self.ports.remove(port);
        }
        dirty.endpoints.insert(port.clone());
    }
}

/// Who serves a hostname.
struct Owner {
    /// The listener's own hostname.
    hostname: Hostname,
    listener: ListenerId,
    protocol: Protocol,
    /// Whether the hostname is the listener's own.
    is_own: bool,
}

/// What one hostname has on one frontend.
#[derive(Default)]
struct Unit {
    scope: Option<Scope>,
    table: Option<(Option<Hostname>, VirtualHost)>,
    cluster: Option<Cluster>,
    gate: Option<(ChainName, Chain)>,
}

fn fixed_name(id: &FrontendId, hostname: &Hostname) -> SecretName {
    SecretName::Fixed(Arc::from(format!("{id}/{hostname}")))
}

fn secret(name: SecretName, certificate: Arc<crate::model::Certificate>, params: TlsParams) -> Resource {
    Resource::Secret(Secret { name, certificate, params })
}

/// Name of the chain that all exact hosts of one class share.
fn class_name(kind: &str, tls: &Termination) -> String {
    let mut name = kind.to_owned();
    if tls.alpn != ["h2", "http/1.1"] {
        name = format!("{name}+{}", tls.alpn.join("+"));
    }
    if let CertificateSource::Fixed(secret) = &tls.certificate {
        name = format!("{name}:{secret}");
    }
    name
}

/// Derives the port that a redirect shows (`HTTPRequestRedirectFilter.port`): the one given; else the scheme's own if
/// a scheme is given; else the listener's. The scheme's own port is left out.
fn derive_port(rule: &Arc<Rule>, listener: u16, tls: bool) -> Arc<Rule> {
    let Action::Redirect(redirect) = &rule.action else { return rule.clone() };
    let own = match redirect.scheme.as_deref() {
        Some("http") => 80,
        Some("https") => 443,
        _ if tls => 443,
        _ => 80,
    };
    let given = redirect.port.or_else(|| redirect.scheme.is_none().then_some(listener));
    let port = given.filter(|port| *port != own);
    Arc::new(Rule { action: Action::Redirect(Redirect { port, ..redirect.clone() }), ..(**rule).clone() })
}

fn fingerprint(resource: &Resource) -> u64 {
    let mut hasher = DefaultHasher::new();
    resource.hash(&mut hasher);
    hasher.finish()
}

/// The backends that a resource refers to.
fn backends(resource: &Resource) -> BTreeSet<BackendId> {
    let mut all = BTreeSet::new();
    let mut shares = |shares: &[WeightedTarget]| {
        all.extend(shares.iter().filter_map(|share| match &share.target {
            Target::Backend(id) => Some(id.clone()),
            Target::Invalid => None,
        }));
    };
    let hosts = match resource {
        Resource::Scope(scope) => std::slice::from_ref(&scope.virtual_host),
        Resource::Table(table) => &table.virtual_hosts,
        Resource::Frontend(frontend) => {
            if let FrontendKind::Tls { chains, .. } = &frontend.kind {
                for chain in chains.values() {
                    if let Handler::Tcp(targets) = &chain.handler {
                        shares(targets);
                    }
                }
            }
            &[]
        }
        Resource::Cluster(_) | Resource::Endpoints(_) | Resource::Secret(_) => &[],
    };
    let rules = || hosts.iter().flat_map(|host| &host.routes).map(|route| &route.rule);
    for rule in rules() {
        if let Action::Forward(targets) = &rule.action {
            shares(targets);
        }
    }
    all.extend(rules().flat_map(|rule| &rule.mirrors).map(|mirror| mirror.backend.clone()));
    all
}
