//! Finds the listeners and routes that a resource was made from: their statuses report a refusal by
//! Envoy.

use std::sync::Arc;

use super::admission::Admission;
use crate::delta::ResourceKey;
use crate::key::{ListenerId, ParentKey, RouteKey};
use crate::rule::client_validation::Clients;
use crate::state::frontend_state::FrontendState;
use crate::state::frontends::Frontends;
use crate::state::http3::Http3Hosts;
use gatewright_objects::model::{ClusterId, Fleets, FrontendId, Hostname, SecretName};
use gatewright_objects::store::Store;

/// The listeners and routes that a resource was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blame {
    /// Listeners that are affected by the refusal.
    pub listeners: Vec<ListenerId>,
    /// Routes that the resource was made from.
    pub routes: Vec<RouteKey>,
}

impl Blame {
    /// True if all of them are in one namespace, so that none reads about another's objects.
    pub fn is_of_one_namespace(&self) -> bool {
        let listeners = self.listeners.iter().map(|listener| listener.parent.name());
        let mut all = listeners
            .chain(self.routes.iter().map(|route| &route.name))
            .map(|name| &name.namespace);
        all.next()
            .is_none_or(|first| all.all(|other| other == first))
    }
}

/// The states for finding the listeners and routes of a resource.
#[derive(Clone, Copy)]
pub(crate) struct Blaming<'a> {
    pub(crate) store: &'a Store,
    pub(crate) admission: Admission<'a>,
    pub(crate) frontends: &'a Frontends,
}

impl<'a> Blaming<'a> {
    /// Returns the listeners and routes that a resource was made from, and that Envoys of these
    /// fleets serve: a backend or a certificate may also be that of other fleets.
    pub(crate) fn of(self, key: &ResourceKey, fleets: &Fleets) -> Blame {
        let mut blame = Blame::default();
        match key {
            ResourceKey::Scope(id, hostname)
            | ResourceKey::SniCluster(id, hostname)
            | ResourceKey::Endpoints(ClusterId::Sni(id, hostname)) => {
                self.blame_host(id, hostname, &mut blame);
            }
            ResourceKey::Table(table) => {
                let hosts = self
                    .frontends
                    .get(&table.frontend)
                    .and_then(|f| f.hosts().table(&table.listener));
                for hostname in hosts.into_iter().flat_map(|hosts| hosts.keys()) {
                    self.blame_host(&table.frontend, hostname, &mut blame);
                }
            }
            ResourceKey::WideHosts(id) => {
                let wide = self
                    .frontends
                    .get(id)
                    .map(|frontend| frontend.hosts().plain_wide());
                for hostname in wide.into_iter().flatten() {
                    self.blame_host(id, hostname, &mut blame);
                }
            }
            ResourceKey::Frontend(id)
            | ResourceKey::UdpCluster(id)
            | ResourceKey::Endpoints(ClusterId::Udp(id)) => {
                let all = self.served_by(id);
                blame
                    .listeners
                    .extend(all.map(|(_, listener)| listener.clone()));
            }
            ResourceKey::Secret(SecretName::Sni(hostname)) => {
                let winners = self
                    .frontends
                    .iter()
                    .filter_map(|(_, frontend)| frontend.winner(hostname));
                blame
                    .listeners
                    .extend(winners.map(|(listener, _)| listener.clone()));
            }
            ResourceKey::Secret(SecretName::Tickets(id, hostname)) => {
                self.blame_host(id, hostname, &mut blame);
            }
            ResourceKey::Secret(SecretName::Fixed(id, name)) => {
                let own = self
                    .served_by(id)
                    .filter(|(hostname, _)| **name == *hostname.to_string());
                blame
                    .listeners
                    .extend(own.map(|(_, listener)| listener.clone()));
            }
            // Routes refer to them.
            ResourceKey::Secret(SecretName::ClientSecret(_) | SecretName::CookieKey(_)) => {}
            ResourceKey::Secret(SecretName::Client(gateway)) => {
                let parent = self
                    .admission
                    .parents
                    .get(&ParentKey::Gateway(gateway.clone()));
                blame.listeners.extend(
                    parent
                        .iter()
                        .flat_map(|parent| parent.listeners.iter().map(|l| parent.id(l))),
                );
            }
            ResourceKey::Secret(SecretName::Roots(name)) => {
                let own = ParentKey::Gateway(name.gateway.clone());
                let sets = self
                    .store
                    .sets_of(&name.gateway)
                    .cloned()
                    .map(ParentKey::ListenerSet);
                for parent in std::iter::once(own)
                    .chain(sets)
                    .filter_map(|key| self.admission.parents.get(&key))
                {
                    let listeners = parent
                        .listeners
                        .iter()
                        .filter(|listener| checks(&listener.clients, name));
                    blame
                        .listeners
                        .extend(listeners.map(|listener| parent.id(listener)));
                }
            }
            ResourceKey::Backend(id) | ResourceKey::Endpoints(ClusterId::Backend(id)) => {
                blame.routes.extend(
                    self.store
                        .indexes()
                        .routes_by_service(&id.port.service)
                        .cloned(),
                );
            }
        }
        blame
            .listeners
            .retain(|listener| self.is_listener_of(listener, fleets));
        blame.listeners.sort();
        blame.listeners.dedup();
        blame.routes.retain(|route| self.is_route_of(route, fleets));
        blame.routes.sort();
        blame.routes.dedup();
        blame
    }

    /// Returns the owners of the hostnames of a filter chain, by the name of the frontend's
    /// resource and of the chain, if Envoys of these fleets serve the frontend.
    pub(crate) fn of_chain(self, frontend: &str, chain: &str, fleets: &Fleets) -> Blame {
        let mut blame = Blame::default();
        for (_, state) in self
            .frontends
            .iter()
            .filter(|(id, _)| named(id, frontend, fleets))
        {
            let led = state
                .matcher()
                .all()
                .iter()
                .filter(|(_, name)| &***name == chain)
                .map(|(hostname, _)| hostname);
            let owners = led.filter_map(|hostname| state.owner(hostname));
            blame
                .listeners
                .extend(owners.map(|(_, listener, _)| listener.clone()));
            blame
                .listeners
                .extend(state.http3().of_chain(chain).cloned());
        }
        blame.listeners.sort();
        blame.listeners.dedup();
        blame
    }

    /// Returns whether Envoys of these fleets serve a listener.
    fn is_listener_of(self, listener: &ListenerId, fleets: &Fleets) -> bool {
        self.admission
            .parents
            .frontend_of(listener)
            .is_some_and(|id| fleets.has(&id.fleet()))
    }

    /// Returns whether a listener that accepts a route is served by Envoys of these fleets.
    pub(crate) fn is_route_of(self, route: &RouteKey, fleets: &Fleets) -> bool {
        self.admission
            .attachments
            .of(route)
            .iter()
            .any(|(_, parent, attachment)| {
                attachment
                    .listeners
                    .iter()
                    .any(|attached| self.is_listener_of(&id(&attached.listener, parent), fleets))
            })
    }

    /// The hostnames of a frontend with the listeners that serve them, also those that ask for
    /// HTTP/3.
    fn served_by(self, id: &FrontendId) -> impl Iterator<Item = (&'a Hostname, &'a ListenerId)> {
        let frontend = self.frontends.get(id);
        let winners = frontend.into_iter().flat_map(FrontendState::winners);
        let http3 = frontend.map(FrontendState::http3);
        winners
            .map(|(hostname, (listener, _))| (hostname, listener))
            .chain(http3.into_iter().flat_map(Http3Hosts::asked))
    }

    fn blame_host(self, id: &FrontendId, hostname: &Hostname, blame: &mut Blame) {
        let Some((_, listener, _)) = self
            .frontends
            .get(id)
            .and_then(|frontend| frontend.owner(hostname))
        else {
            return;
        };
        blame.routes.extend(
            self.admission
                .served(hostname, listener)
                .map(|(route, _)| route.clone()),
        );
        blame.listeners.push(listener.clone());
    }
}

fn checks(clients: &Clients, name: &gatewright_objects::model::RootsName) -> bool {
    matches!(clients, Clients::Checked(own) if own.roots == *name)
}

fn named(id: &FrontendId, frontend: &str, fleets: &Fleets) -> bool {
    fleets.has(&id.fleet()) && id.to_string() == *frontend
}

fn id(name: &Arc<str>, parent: &ParentKey) -> ListenerId {
    ListenerId {
        parent: parent.clone(),
        name: name.clone(),
    }
}
