//! Decodes a route configuration or listener into its parts, and composes it again.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener};
use envoy_types::pb::envoy::config::route::v3::{
    DirectResponseAction, Route, RouteConfiguration, ScopedRouteConfiguration, VirtualHost,
    route::Action,
};
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use sha2::{Digest as _, Sha256};

use crate::{Kind, Resource};

/// A hash of a part's content.
pub(crate) type Digest = [u8; 16];

/// The key under which a virtual host that represents a filter chain has the chain.
const CHAIN: &str = "filter-chain";

/// The resource around the virtual hosts.
#[derive(Debug)]
enum Envelope {
    Table(RouteConfiguration),
    /// A scope with inline configuration.
    Scope(Box<ScopedRouteConfiguration>, RouteConfiguration),
    /// Its filter chains are represented by virtual hosts without routes.
    Listener(Box<Listener>),
}

/// A decoded listener, or resource of routes.
#[derive(Debug)]
pub(crate) struct Content {
    name: String,
    /// Without its virtual hosts or filter chains.
    envelope: Envelope,
    pub(crate) hosts: Vec<VirtualHost>,
}

impl Content {
    /// Decodes a resource that can be divided: one with virtual hosts, or with filter chains that
    /// have unique names.
    pub(crate) fn read(resource: &Resource) -> Option<Content> {
        let (envelope, hosts) = match resource.kind() {
            Kind::Route => {
                let mut config = RouteConfiguration::decode(resource.body()).ok()?;
                let hosts = std::mem::take(&mut config.virtual_hosts);
                (Envelope::Table(config), hosts)
            }
            Kind::Scope => {
                let mut scope = ScopedRouteConfiguration::decode(resource.body()).ok()?;
                let mut config = scope.route_configuration.take()?;
                let hosts = std::mem::take(&mut config.virtual_hosts);
                (Envelope::Scope(Box::new(scope), config), hosts)
            }
            Kind::Listener => {
                let mut listener = Listener::decode(resource.body()).ok()?;
                let chains = std::mem::take(&mut listener.filter_chains);
                let names: BTreeSet<&str> = chains.iter().map(|chain| &*chain.name).collect();
                if names.len() < chains.len() || names.contains("") {
                    return None;
                }
                (
                    Envelope::Listener(Box::new(listener)),
                    chains.iter().map(host_of_chain).collect(),
                )
            }
            _ => return None,
        };
        (!hosts.is_empty()).then(|| Content {
            name: resource.name().to_owned(),
            envelope,
            hosts,
        })
    }

    /// Composes the resource with other virtual hosts, each with a flag that is true for an older
    /// version. A domain of both an older and a newer one is left to the newer: a client refuses a
    /// table that has it twice.
    pub(crate) fn with_hosts(&self, hosts: Vec<(VirtualHost, bool)>) -> Resource {
        let new: BTreeSet<String> = hosts
            .iter()
            .filter(|(_, old)| !old)
            .flat_map(|(host, _)| host.domains.iter().cloned())
            .collect();
        let hosts = hosts.into_iter().filter_map(|(mut host, old)| {
            if old {
                host.domains.retain(|domain| !new.contains(domain));
            }
            (!old || !host.domains.is_empty()).then_some(host)
        });
        match &self.envelope {
            Envelope::Table(config) => Resource::new(
                &*self.name,
                &RouteConfiguration {
                    virtual_hosts: hosts.collect(),
                    ..config.clone()
                },
            ),
            Envelope::Scope(scope, config) => {
                let config = RouteConfiguration {
                    virtual_hosts: hosts.collect(),
                    ..config.clone()
                };
                let scope = ScopedRouteConfiguration {
                    route_configuration: Some(config),
                    ..(**scope).clone()
                };
                Resource::new(&*self.name, &scope)
            }
            Envelope::Listener(listener) => {
                let filter_chains = hosts.filter_map(|host| chain_of_host(&host)).collect();
                Resource::new(
                    &*self.name,
                    &Listener {
                        filter_chains,
                        ..(**listener).clone()
                    },
                )
            }
        }
    }
}

/// Makes a virtual host that represents a filter chain.
fn host_of_chain(chain: &FilterChain) -> VirtualHost {
    let held = Any {
        type_url: FilterChain::type_url(),
        value: crate::canonical_encoding::encode(chain),
    };
    VirtualHost {
        name: chain.name.clone(),
        domains: vec![chain.name.clone()],
        typed_per_filter_config: [(CHAIN.to_owned(), held)].into(),
        ..Default::default()
    }
}

/// Returns the filter chain that a virtual host represents.
fn chain_of_host(host: &VirtualHost) -> Option<FilterChain> {
    FilterChain::decode(host.typed_per_filter_config.get(CHAIN)?.value.as_slice()).ok()
}

/// Replaces the action of a route by status 500.
pub(crate) fn answered(route: Route) -> Route {
    Route {
        name: route.name,
        r#match: route.r#match,
        action: Some(Action::DirectResponse(DirectResponseAction {
            status: 500,
            ..Default::default()
        })),
        ..Default::default()
    }
}

/// Returns the author of a route, by its name: `<kind>/<namespace>` for `<kind>/<namespace>/...`.
pub(crate) fn author(route: &str) -> &str {
    route
        .match_indices('/')
        .nth(1)
        .map_or(route, |(at, _)| &route[..at])
}

/// Returns a hash of a message: equal values have equal hashes in every process.
pub(crate) fn digest<M: Message + Default + PartialEq + 'static>(message: &M) -> Digest {
    let hash = Sha256::digest(crate::canonical_encoding::encode(message));
    hash[..16].try_into().expect("a SHA-256 is longer")
}

/// Returns a hash of a virtual host without its routes.
pub(crate) fn frame_digest(host: &VirtualHost) -> Digest {
    digest(&frame(host))
}

/// Returns a virtual host without its routes.
pub(super) fn frame(host: &VirtualHost) -> VirtualHost {
    let mut frame = host.clone();
    frame.routes = Vec::new();
    frame
}
