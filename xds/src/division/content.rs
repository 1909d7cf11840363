//! A route configuration taken apart and put together again.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::route::v3::{
    DirectResponseAction, Route, RouteConfiguration, ScopedRouteConfiguration, VirtualHost, route::Action,
};
use prost::Message;
use sha2::{Digest as _, Sha256};

use crate::{Kind, Resource};

/// A hash of a part's content.
pub(crate) type Digest = [u8; 16];

/// A decoded resource of routes.
#[derive(Debug)]
pub(crate) struct Content {
    name: String,
    /// Around the configuration, where it is inline.
    scope: Option<ScopedRouteConfiguration>,
    /// Without its virtual hosts.
    config: RouteConfiguration,
    pub(crate) hosts: Vec<VirtualHost>,
}

impl Content {
    /// The content of a resource that can be divided: one with virtual hosts.
    pub(crate) fn read(resource: &Resource) -> Option<Content> {
        let (scope, mut config) = match resource.kind() {
            Kind::Route => (None, RouteConfiguration::decode(resource.body()).ok()?),
            Kind::Scope => {
                let mut scope = ScopedRouteConfiguration::decode(resource.body()).ok()?;
                let config = scope.route_configuration.take()?;
                (Some(scope), config)
            }
            _ => return None,
        };
        let hosts = std::mem::take(&mut config.virtual_hosts);
        (!hosts.is_empty()).then(|| Content { name: resource.name().to_owned(), scope, config, hosts })
    }

    /// The same resource with other virtual hosts, each with whether it is of an older version. A domain that an older
    /// and a newer one have is the newer one's: a client refuses a table that has it twice.
    pub(crate) fn with_hosts(&self, hosts: Vec<(VirtualHost, bool)>) -> Resource {
        let new: BTreeSet<String> =
            hosts.iter().filter(|(_, old)| !old).flat_map(|(host, _)| host.domains.iter().cloned()).collect();
        let hosts = hosts.into_iter().filter_map(|(mut host, old)| {
            if old {
                host.domains.retain(|domain| !new.contains(domain));
            }
            (!old || !host.domains.is_empty()).then_some(host)
        });
        let config = RouteConfiguration { virtual_hosts: hosts.collect(), ..self.config.clone() };
        match &self.scope {
            None => Resource::new(&*self.name, &config),
            Some(scope) => Resource::new(
                &*self.name,
                &ScopedRouteConfiguration { route_configuration: Some(config), ..scope.clone() },
            ),
        }
    }
}

/// The route with the status 500 for what it does.
pub(crate) fn answered(route: Route) -> Route {
    Route {
        name: route.name,
        r#match: route.r#match,
        action: Some(Action::DirectResponse(DirectResponseAction { status: 500, ..Default::default() })),
        ..Default::default()
    }
}

/// Who made a route, by its name: `<kind>/<namespace>/...` is of `<kind>/<namespace>`.
pub(crate) fn author(route: &str) -> &str {
    route.match_indices('/').nth(1).map_or(route, |(at, _)| &route[..at])
}

/// A hash of a message, the same for the same value in every process.
pub(crate) fn digest<M: Message + Default + PartialEq + 'static>(message: &M) -> Digest {
    let hash = Sha256::digest(crate::stable::encode(message));
    hash[..16].try_into().expect("a SHA-256 is longer")
}

/// A hash of a virtual host without its routes.
pub(crate) fn frame_digest(host: &VirtualHost) -> Digest {
    digest(&frame(host))
}

/// A virtual host without its routes.
pub(super) fn frame(host: &VirtualHost) -> VirtualHost {
    let mut frame = host.clone();
    frame.routes = Vec::new();
    frame
}
