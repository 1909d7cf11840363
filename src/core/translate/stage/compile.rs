//! Compiles listeners and routes into resources, one unit (frontend, hostname) at a time.

use std::sync::Arc;

use super::challenge::Answering;
use super::fleet::note_gateway;
use super::frontend_logs::host_owner;
use super::plain_http::{Securing, https_port, plain_routes, redirected};
use super::routes::{Port, Routing};
use super::termination::{resumed, termination};
use super::unit::Unit;
use crate::delta::{Resource, ResourceKey};
use crate::key::ListenerId;
use crate::rule::chain_class::{ChainClass, Purpose};
use crate::rule::client_validation::Clients;
use crate::rule::protocol::Protocol;
use crate::state::challenge_answers::ChallengeAnswers;
use crate::state::cluster_targets::ClusterTargets;
use crate::state::datagrams;
use crate::state::dirty::Dirty;
use crate::state::emissions::Emissions;
use crate::state::frontend_state::{FrontendState, Owner};
use crate::state::frontends::Frontends;
use crate::state::parent::ParentListener;
use crate::state::parents::Parents;
use crate::state::placed_hosts::Tenant;
use crate::state::scope_keys::Seniority;
use crate::state::secret_names::{SecretNames, SniContent, fixed_name};
use crate::state::session_tickets::SessionTickets;
use gatewright_objects::model::{
    AppProtocol, Cluster, ClusterId, FrontendId, Hostname, IdentityRemoval, Requests, Route, Scope,
    SecretName, Target, Thumbprint, VirtualHost, WeightedTarget,
};

/// The stage that compiles units.
pub(crate) struct Units<'a> {
    pub(crate) routing: Routing<'a>,
    pub(crate) names: &'a mut SecretNames,
    pub(crate) challenges: &'a mut ChallengeAnswers,
    pub(crate) tickets: &'a mut SessionTickets,
    pub(crate) frontends: &'a mut Frontends,
    pub(crate) emissions: &'a mut Emissions,
}

impl<'a> Units<'a> {
    /// Compiles all resources of one hostname on one frontend.
    pub(crate) fn compile(&mut self, id: &FrontendId, hostname: &Hostname, dirty: &mut Dirty) {
        let owner = self
            .frontends
            .get(id)
            .and_then(|frontend| frontend.owner(hostname));
        let owner = owner.map(|(name, listener, protocol)| Owner {
            hostname: name.clone(),
            listener: listener.clone(),
            protocol,
            is_own: name == hostname,
        });
        let listener = owner
            .as_ref()
            .and_then(|o| self.parents().listener(&o.listener))
            .cloned();
        if let Some(owner) = &owner {
            note_gateway(self.parents(), &id.gateway, &owner.listener, dirty);
        }
        let own = owner
            .as_ref()
            .filter(|o| o.is_own && o.protocol.terminates())
            .zip(listener.as_ref());
        // This comes first, since chains depend on which of all frontends has the secret of the
        // name.
        let own = own.map(|(owner, listener)| (&owner.listener, listener));
        let is_resumed = self.place_tickets(id, hostname, own, dirty);
        self.place_secret(id, hostname, own, is_resumed, dirty);
        let own = own.map(|(_, listener)| listener);
        if let Some(frontend) = self.frontends.get_mut(id) {
            frontend.place_sans(hostname, own, dirty);
        }
        let mut unit = Unit::default();
        // A TCP or UDP port has no hostnames that another namespace could own.
        let wide = owner
            .as_ref()
            .filter(|owner| !owner.is_own && owner.protocol.has_hostnames());
        let is_of_another = wide.is_some_and(|wide| {
            let admission = self.routing.admission;
            admission.is_of_another(id, hostname, &wide.listener)
                || admission.is_of_another_admitted(hostname, &wide.listener)
        });
        if let (Some(owner), Some(listener)) = (&owner, &listener) {
            unit = match owner.protocol {
                // A ListenerSet of another namespace serves it on HTTPS.
                Protocol::Http if is_of_another && self.https(id, hostname, owner).is_some() => {
                    self.redirect_unit(id, hostname, owner)
                }
                // Names below another's wildcard are excluded by that wildcard's unit.
                _ if is_of_another
                    && !self.routing.admission.is_owned(hostname, &owner.listener) =>
                {
                    Unit::default()
                }
                _ if is_of_another => self.kept_unit(id, hostname, owner),
                _ if is_closed(&self.name(id, &owner.hostname), owner.protocol, listener) => Unit {
                    chain_class: owner.is_own.then(ChainClass::closed),
                    ..Unit::default()
                },
                Protocol::Tcp | Protocol::Udp if listener.guard.refuses() => {
                    Unit::refused(owner.protocol)
                }
                Protocol::Http => self.http_unit(id, hostname, owner, listener),
                Protocol::Https => self.https_unit(id, hostname, owner, listener, dirty),
                Protocol::TlsTerminate | Protocol::TlsPassthrough => {
                    self.tls_unit(id, hostname, owner, listener)
                }
                Protocol::Tcp => Unit {
                    shares: self.oldest_shares(hostname, owner),
                    ..Unit::default()
                },
                Protocol::Udp => Unit {
                    datagrams: self.oldest_shares(hostname, owner),
                    ..Unit::default()
                },
            };
        }
        if self.frontends.get(id).is_some_and(FrontendState::is_plain) {
            let account = self.frontends.account(id, hostname);
            unit.scope = plain_scope(id, hostname, unit.plain.take(), account);
        }
        let server = owner.as_ref().filter(|_| !is_of_another);
        let seniority = unit
            .scope
            .as_ref()
            .map(|_| Seniority::of(server, self.parents()));
        if !self.frontends.scope_keys.place(
            &(id.clone(), hostname.clone()),
            seniority,
            server,
            dirty,
        ) {
            unit.scope = None;
        }
        self.place_http3(id, hostname, own, unit.scope.as_mut(), dirty);
        let is_https = owner
            .as_ref()
            .is_some_and(|owner| owner.protocol == Protocol::Https);
        let host = match (&unit.scope, &unit.table) {
            (Some(scope), _) => Some(&scope.virtual_host),
            (None, Some((_, host))) => Some(host),
            (None, None) => None,
        };
        let beneath = owner
            .as_ref()
            .filter(|owner| is_https && !is_of_another && !owner.hostname.is_exact())
            .zip(host)
            .map(|(owner, host)| (owner.hostname.clone(), tenant(host, owner)));
        let mut securing = Securing {
            routing: self.routing,
            frontends: self.frontends,
        };
        securing.note(id, hostname, owner.as_ref(), is_of_another, dirty);
        if let Some(frontend) = self.frontends.get_mut(id) {
            let is_in_plain_scope = frontend.is_plain() && unit.scope.is_some();
            let hosts = frontend.hosts_mut();
            hosts.place_plain(id, hostname, is_in_plain_scope, dirty);
            hosts.place_in_table(id, hostname, unit.table, dirty);
            hosts.place_beneath(id, hostname, beneath, dirty);
        }
        self.emissions.emit(
            ResourceKey::Scope(id.clone(), hostname.clone()),
            unit.scope.map(Resource::Scope),
            dirty,
        );
        self.emissions.emit(
            ResourceKey::SniCluster(id.clone(), hostname.clone()),
            unit.cluster.map(Resource::Cluster),
            dirty,
        );
        if hostname.is_any() {
            self.pass_on(id, unit.shares, unit.datagrams, dirty);
        }
        if let Some(frontend) = self.frontends.get_mut(id) {
            frontend.set_chain(id, hostname, unit.chain_class, dirty);
        }
        self.note_contest(id, hostname, dirty);
    }

    /// Places the certificate of a listener under the name that its chain requests; with session
    /// tickets under both names, so that the chain without them is there at once.
    fn place_secret(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        own: Option<(&ListenerId, &ParentListener)>,
        is_resumed: bool,
        dirty: &mut Dirty,
    ) {
        let register = self.routing.admission.register;
        let content = own.map(|(id, listener)| SniContent::of(id, listener));
        if hostname.is_exact() {
            self.names
                .set(id, hostname, content.as_ref(), register, dirty);
            Answering::new(self.names, self.challenges, self.frontends).place(
                hostname,
                &id.gateway,
                dirty,
            );
            let shared = self.names.shared_secret(hostname, register);
            self.emissions.emit(
                ResourceKey::Secret(SecretName::Sni(hostname.clone())),
                shared,
                dirty,
            );
        }
        let own = self
            .names
            .own_secret(id, hostname, (content, is_resumed), register);
        self.emissions
            .emit(ResourceKey::Secret(fixed_name(id, hostname)), own, dirty);
    }

    fn parents(&self) -> &'a Parents {
        self.routing.admission.parents
    }

    fn name(&self, id: &FrontendId, hostname: &Hostname) -> SecretName {
        self.names
            .name(id, hostname, self.routing.admission.register)
    }

    /// The unit that excludes a hostname from the wildcard or catch-all listener over it. A request
    /// for a granted one may come on a connection to another name of that listener: it is excluded
    /// from the listener's table as well.
    fn kept_unit(&self, id: &FrontendId, hostname: &Hostname, owner: &Owner) -> Unit {
        let unit = Unit::kept_off(id, hostname, owner.protocol);
        let granted = self.routing.admission.register.granted();
        if owner.protocol != Protocol::Https || granted.first(hostname).is_none() {
            return unit;
        }
        let virtual_host = VirtualHost::new(hostname.clone(), Vec::new());
        Unit {
            table: Some((owner.hostname.clone(), virtual_host)),
            ..unit
        }
    }

    /// A virtual host behind what its listener has before all routes.
    fn virtual_host(
        &self,
        id: &FrontendId,
        hostname: &Hostname,
        owner: &Owner,
        listener: &ParentListener,
        routes: Vec<Route>,
    ) -> VirtualHost {
        let client = self.parents().client_of(&owner.listener);
        let policies = self.routing.policies;
        let filters = listener
            .guard
            .filters
            .as_ref()
            .map(|filters| policies.filters_with_client(filters, client));
        let parent = self.parents().get(&owner.listener.parent);
        let identity_headers = parent
            .map(|parent| parent.placement.exposure.identity_headers)
            .unwrap_or_default();
        let frontend = self.frontends.get(id);
        let named = frontend
            .filter(|frontend| frontend.names_owners())
            .and_then(|_| host_owner(owner, &routes, self.parents()));
        VirtualHost {
            filters,
            identity_headers,
            owner: named.map(Arc::new),
            ..VirtualHost::new(hostname.clone(), routes)
        }
    }

    fn http_unit(
        &self,
        id: &FrontendId,
        hostname: &Hostname,
        owner: &Owner,
        listener: &ParentListener,
    ) -> Unit {
        let at = (id, hostname);
        let routes = plain_routes(self.routing, self.frontends, at, &owner.listener);
        let plain = routes.map(|routes| self.virtual_host(id, hostname, owner, listener, routes));
        Unit {
            plain,
            ..Unit::default()
        }
    }

    /// The unit of a hostname on plain HTTP of which nothing is served there.
    fn redirect_unit(&self, id: &FrontendId, hostname: &Hostname, owner: &Owner) -> Unit {
        let https = self.https(id, hostname, owner);
        let routes = https.map(|https| redirected(Vec::new(), hostname, https));
        Unit {
            plain: routes.map(|routes| VirtualHost::new(hostname.clone(), routes)),
            ..Unit::default()
        }
    }

    /// The port of HTTPS that requests for a hostname on plain HTTP are redirected to.
    fn https(&self, id: &FrontendId, hostname: &Hostname, owner: &Owner) -> Option<u16> {
        let parents = self.parents();
        https_port(self.frontends, parents, (id, hostname), &owner.listener)
    }

    fn https_unit(
        &self,
        id: &FrontendId,
        hostname: &Hostname,
        owner: &Owner,
        listener: &ParentListener,
        dirty: &mut Dirty,
    ) -> Unit {
        let at = Port {
            number: id.port,
            tls: true,
        };
        let routes = self.routing.host_routes(at, hostname, &owner.listener);
        if routes.is_none() && hostname.is_exact() {
            return Unit::default();
        }
        let is_below = !owner.is_own && routes.is_some();
        let routes = routes.unwrap_or_default();
        let Some(frontend) = self.frontends.get(id) else {
            return Unit::default();
        };
        let wide = !owner.hostname.is_exact();
        let virtual_host = self.virtual_host(id, hostname, owner, listener, routes);
        if hostname.is_exact() {
            let tenant = tenant(&virtual_host, owner);
            if wide
                && frontend
                    .hosts()
                    .is_tabled(&owner.hostname, hostname, &tenant)
            {
                return Unit {
                    table: Some((owner.hostname.clone(), virtual_host)),
                    ..Unit::default()
                };
            }
            let tls = if owner.is_own && self.tickets.is_served(id, hostname) {
                resumed(id, hostname, listener)
            } else {
                let name = self.name(id, &owner.hostname);
                termination(name, &owner.hostname, listener)
            };
            let chain_class = ChainClass {
                purpose: Purpose::of_host(&virtual_host, wide),
                listener: wide.then(|| owner.hostname.clone()),
                tls: Some(tls),
            };
            let scope = Scope {
                frontend: id.clone(),
                requests: Requests::OfListener(owner.hostname.clone()),
                virtual_host,
            };
            return Unit {
                scope: Some(scope),
                chain_class: Some(chain_class),
                ..Unit::default()
            };
        }
        // A wildcard or empty hostname, whose routes are in the listener's table.
        let is_guarded = owner.is_own && virtual_host.filters.is_some();
        let has_routes = is_below || is_guarded || !virtual_host.routes.is_empty();
        let mut unit = Unit::default();
        if has_routes {
            unit.table = Some((owner.hostname.clone(), virtual_host));
        }
        if owner.is_own {
            let table = frontend.hosts().table(hostname);
            let others = table.is_some_and(|table| table.keys().any(|name| name != hostname));
            unit.chain_class = Some(wide_chain(
                self.name(id, hostname),
                hostname,
                listener,
                has_routes || others,
            ));
        } else {
            // The listener may begin or cease to need a table.
            dirty.tables.insert((id.clone(), owner.hostname.clone()));
        }
        unit
    }

    fn tls_unit(
        &self,
        id: &FrontendId,
        hostname: &Hostname,
        owner: &Owner,
        listener: &ParentListener,
    ) -> Unit {
        let mut route = self.routing.best_route(hostname, &owner.listener, None);
        let is_kept = route.is_none() && self.is_kept(hostname, owner);
        if is_kept {
            let only = self.routing.admission.kept_for(hostname, &owner.listener);
            let mut wider = hostname.covering().chain([Hostname::any()]);
            route = wider.find_map(|wide| self.routing.best_route(&wide, &owner.listener, only));
        }
        if route.is_none() && !owner.is_own {
            return Unit {
                chain_class: is_kept.then(ChainClass::closed),
                ..Unit::default()
            };
        }
        let tls = (owner.protocol == Protocol::TlsTerminate)
            .then(|| termination(self.name(id, &owner.hostname), &owner.hostname, listener));
        // For passed-through TLS all hostnames share a chain.
        let wide = (tls.is_some() && !owner.hostname.is_exact()).then(|| owner.hostname.clone());
        let mut shares = route
            .map(|route| self.routing.shares(&route))
            .unwrap_or_default();
        if tls.is_some() {
            let client = self.parents().client_of(&owner.listener);
            let policies = self.routing.policies;
            shares
                .iter_mut()
                .for_each(|share| share.target = policies.terminated(share.target.clone(), client));
        }
        // Requests for this host on connections of other listeners are misdirected, even without
        // HTTP here; so are those on a connection that is older than this listener.
        let scope = (owner.is_own && hostname.is_exact()).then(|| Scope {
            frontend: id.clone(),
            requests: Requests::Misdirected,
            virtual_host: VirtualHost::new(hostname.clone(), Vec::new()),
        });
        // Without a route the chain finds no cluster for the SNI and resets, which excludes the
        // name from a wider listener.
        let by_sni = hostname.is_exact()
            && shares.len() <= 1
            // The filter that all these hostnames share has no hash.
            && shares.iter().all(|share| match &share.target {
                Target::Backend(id) => id.protocol == AppProtocol::Tcp && share.hash.is_none(),
                Target::Invalid => true,
            })
            || shares.is_empty();
        if by_sni {
            let cluster =
                shares
                    .first()
                    .filter(|_| hostname.is_exact())
                    .map(|share| Cluster::Sni {
                        frontend: id.clone(),
                        hostname: hostname.clone(),
                        port: match &share.target {
                            Target::Backend(backend) => Some(backend.port.clone()),
                            Target::Invalid => None,
                        },
                        settings: self.routing.policies.settings_of(&share.target),
                    });
            let chain_class = Some(ChainClass {
                purpose: Purpose::TcpBySni,
                listener: wide,
                tls,
            });
            return Unit {
                scope,
                cluster,
                chain_class,
                ..Unit::default()
            };
        }
        let chain_class = Some(ChainClass {
            purpose: Purpose::Tcp(hostname.clone(), shares),
            listener: wide,
            tls,
        });
        Unit {
            scope,
            chain_class,
            ..Unit::default()
        }
    }

    /// The targets of all traffic of a port: of several routes the oldest is served.
    fn oldest_shares(&self, hostname: &Hostname, owner: &Owner) -> Option<Vec<WeightedTarget>> {
        let route = self.routing.best_route(hostname, &owner.listener, None);
        owner.is_own.then(|| {
            route
                .map(|route| self.routing.shares(&route))
                .unwrap_or_default()
        })
    }

    /// Sets the backends of connections or datagrams of a port.
    fn pass_on(
        &mut self,
        id: &FrontendId,
        shares: Option<Vec<WeightedTarget>>,
        datagrams: Option<Vec<WeightedTarget>>,
        dirty: &mut Dirty,
    ) {
        if let Some(frontend) = self.frontends.get_mut(id) {
            frontend.pass_on(id, shares.unwrap_or_default(), dirty);
        }
        let cluster = datagrams.as_deref().map(|shares| {
            Resource::Cluster(Cluster::Udp {
                frontend: id.clone(),
                settings: datagrams::of_shares(shares, self.routing.policies),
            })
        });
        self.emissions
            .emit(ResourceKey::UdpCluster(id.clone()), cluster, dirty);
        if let Some(shares) = datagrams {
            let targets = ClusterTargets::Weighted(
                shares
                    .into_iter()
                    .map(|share| match share.target {
                        Target::Backend(backend) => (Some(backend.port), share.weight),
                        Target::Invalid => (None, share.weight),
                    })
                    .collect(),
            );
            dirty.set_cluster_targets(ClusterId::Udp(id.clone()), Some(targets));
        }
    }

    /// True if a hostname of routes is kept from a wider listener that would serve it.
    fn is_kept(&self, hostname: &Hostname, owner: &Owner) -> bool {
        !owner.is_own
            && self
                .routing
                .admission
                .kept_for(hostname, &owner.listener)
                .is_some()
    }
}

/// True if the listener has only the chain that closes connections: it accepts no client, or its
/// certificate is missing. Envoy keeps a whole Listener waiting until all secrets of its chains
/// have arrived, which for a missing one delays every host of the port by seconds.
fn is_closed(name: &SecretName, protocol: Protocol, listener: &ParentListener) -> bool {
    match protocol {
        Protocol::Http | Protocol::Tcp | Protocol::Udp => false,
        Protocol::Https => listener.clients == Clients::Nobody || is_dark(&name, &listener.served),
        Protocol::TlsTerminate => {
            listener.clients == Clients::Nobody
                || is_dark(&name, &listener.served)
                || listener.guard.refuses()
        }
        Protocol::TlsPassthrough => listener.guard.refuses(),
    }
}

fn is_dark(name: &&SecretName, listener_served: &crate::Served) -> bool {
    listener_served.certificate().is_none() && matches!(name, SecretName::Fixed(..))
}

/// The chain of a wildcard or catch-all listener: through its table if it has routes for names
/// without a scope, else directly to the scopes.
pub(crate) fn wide_chain(
    name: SecretName,
    hostname: &Hostname,
    listener: &ParentListener,
    table: bool,
) -> ChainClass {
    if is_closed(&name, Protocol::Https, listener) {
        return ChainClass::closed();
    }
    let tls = Some(termination(name, hostname, listener));
    let purpose = if table {
        Purpose::Table
    } else {
        Purpose::Scopes(IdentityRemoval::Late)
    };
    ChainClass {
        purpose,
        listener: Some(hostname.clone()),
        tls,
    }
}

/// The namespace whose routes a virtual host has.
fn tenant(host: &VirtualHost, owner: &Owner) -> Tenant {
    Tenant::of(host, &owner.listener.parent.name().namespace)
}

/// The scope of a hostname on plain HTTP: with its virtual host, or for its challenges alone.
fn plain_scope(
    id: &FrontendId,
    hostname: &Hostname,
    virtual_host: Option<VirtualHost>,
    account: Option<&Thumbprint>,
) -> Option<Scope> {
    let requests = match (&virtual_host, account) {
        (Some(_), account) => Requests::Plain(account.cloned()),
        (None, Some(account)) => Requests::Challenges(account.clone()),
        (None, None) => return None,
    };
    Some(Scope {
        frontend: id.clone(),
        requests,
        virtual_host: virtual_host
            .unwrap_or_else(|| VirtualHost::new(hostname.clone(), Vec::new())),
    })
}

#[cfg(test)]
mod tests;
