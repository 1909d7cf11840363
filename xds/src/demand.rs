//! The subscriptions that a resource causes in Envoy, where the server must know of them.

use std::any::Any;
use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::{
    Cluster, cluster::ClusterDiscoveryType, cluster::DiscoveryType,
};
use envoy_types::pb::envoy::config::listener::v3::{Listener, filter::ConfigType};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, ScopedRds, http_connection_manager::RouteSpecifier,
    scoped_routes::ConfigSpecifier,
};
use prost::{Message, Name};

/// The subscription that a resource causes in Envoy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Demand {
    /// None that the server must know of.
    #[default]
    Nothing,
    /// For a cluster with endpoints by EDS: the name of its ClusterLoadAssignment.
    Assignment(Arc<str>),
    /// For a listener: the distinct encoded `ScopedRds` messages of its HTTP connection managers.
    /// Envoy has one subscription to scopes for all that are equal.
    Scopes(Arc<[Vec<u8>]>),
}

impl Demand {
    /// Returns the demand of the resource `name` with this content.
    pub(crate) fn of(name: &Arc<str>, message: &dyn Any) -> Demand {
        if let Some(cluster) = message.downcast_ref() {
            assignment(name, cluster).map_or(Demand::Nothing, Demand::Assignment)
        } else if let Some(listener) = message.downcast_ref() {
            let sources = scope_sources(listener);
            if sources.is_empty() {
                Demand::Nothing
            } else {
                Demand::Scopes(sources.into())
            }
        } else {
            Demand::Nothing
        }
    }
}

/// Returns the name by which a client requests the endpoints of a cluster
/// (`Cluster.EdsClusterConfig.service_name`).
fn assignment(name: &Arc<str>, cluster: &Cluster) -> Option<Arc<str>> {
    let by_eds = ClusterDiscoveryType::Type(DiscoveryType::Eds.into());
    let config = cluster
        .eds_cluster_config
        .as_ref()
        .filter(|_| cluster.cluster_discovery_type == Some(by_eds))?;
    let own = if config.service_name.is_empty() {
        &cluster.name
    } else {
        &config.service_name
    };
    Some(if **own == **name {
        name.clone()
    } else {
        Arc::from(own.as_str())
    })
}

/// Returns the sources of scopes of all connection managers of a listener.
fn scope_sources(listener: &Listener) -> Vec<Vec<u8>> {
    let chains = listener
        .filter_chains
        .iter()
        .chain(&listener.default_filter_chain);
    let configs = chains
        .flat_map(|chain| &chain.filters)
        .filter_map(|filter| match &filter.config_type {
            Some(ConfigType::TypedConfig(any))
                if any.type_url.rsplit('/').next() == Some(&HttpConnectionManager::full_name()) =>
            {
                HttpConnectionManager::decode(any.value.as_slice()).ok()
            }
            _ => None,
        });
    let mut sources: Vec<_> = configs
        .filter_map(scoped_rds)
        .map(|source| source.encode_to_vec())
        .collect();
    sources.sort();
    sources.dedup();
    sources
}

fn scoped_rds(manager: HttpConnectionManager) -> Option<ScopedRds> {
    match manager.route_specifier? {
        RouteSpecifier::ScopedRoutes(routes) => match routes.config_specifier? {
            ConfigSpecifier::ScopedRds(source) => Some(source),
            ConfigSpecifier::ScopedRouteConfigurationsList(_) => None,
        },
        RouteSpecifier::Rds(_) | RouteSpecifier::RouteConfig(_) => None,
    }
}
