//! From a [`Delta`] of the model to an update of the xDS cache. Pure.

use xds::{Kind, Resource as Encoded, Update};

use crate::envoy::{self, Edge, ResourceName};
use crate::model::{Cluster, Frontend};
use crate::translate::{Delta, Resource, ResourceKey};

/// Encodes what changed.
pub fn update(delta: &Delta) -> Update {
    update_within(delta, &Edge::DEFAULT)
}

/// The same within an operator's limits of connections.
pub fn update_within(delta: &Delta, edge: &Edge) -> Update {
    let mut update = Update::default();
    for (key, resource) in &delta.resources {
        match resource {
            Some(resource) => update.upserts.push(encode_within(resource, edge)),
            None => update.removals.push(name(key)),
        }
    }
    update
}

/// Listeners alone.
pub fn listeners(frontends: &[Frontend], edge: &Edge) -> Update {
    let made = |frontend: &Frontend| Encoded::new(frontend.resource_name(), &envoy::listener_within(frontend, edge));
    Update { upserts: frontends.iter().map(made).collect(), removals: Vec::new() }
}

/// One resource as it is sent.
pub fn encode(resource: &Resource) -> Encoded {
    encode_within(resource, &Edge::DEFAULT)
}

fn encode_within(resource: &Resource, edge: &Edge) -> Encoded {
    match resource {
        Resource::Cluster(cluster) => Encoded::new(cluster.resource_name(), &envoy::cluster_within(cluster, edge)),
        Resource::Endpoints(endpoints) => Encoded::new(endpoints.resource_name(), &envoy::endpoints(endpoints)),
        // The certificate is at hand as long as the engine has its Secret: it is not kept a second time.
        Resource::Secret(secret) => {
            let secret = secret.clone();
            Encoded::made(secret.resource_name(), move || envoy::secret(&secret))
        }
        Resource::Scope(scope) => Encoded::new(scope.resource_name(), &envoy::scope(scope)),
        Resource::Table(table) => Encoded::new(table.resource_name(), &envoy::table(table)),
        Resource::Frontend(frontend) => Encoded::new(frontend.resource_name(), &envoy::listener_within(frontend, edge)),
    }
}

/// Type and name of a resource on the wire.
pub fn name(key: &ResourceKey) -> (Kind, String) {
    match key {
        ResourceKey::Backend(id) => (Kind::Cluster, id.to_string()),
        ResourceKey::SniCluster(frontend, hostname) => {
            let cluster = Cluster::Sni { frontend: frontend.clone(), hostname: hostname.clone(), port: None };
            (Kind::Cluster, cluster.name())
        }
        ResourceKey::Endpoints(port) => (Kind::Endpoints, port.to_string()),
        ResourceKey::Secret(name) => (Kind::Secret, name.to_string()),
        ResourceKey::Scope(frontend, hostname) => (Kind::Scope, format!("{frontend}|{hostname}")),
        ResourceKey::Table(table) => (Kind::Route, table.resource_name()),
        ResourceKey::Frontend(id) => (Kind::Listener, id.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FrontendId, FrontendKind, Hostname, ObjectName, Scope, TableId, VirtualHost};

    /// A resource is taken back under the name it was sent by.
    #[test]
    fn keys_and_resources_have_the_same_names() {
        let id = FrontendId { gateway: ObjectName::new("infra", "edge"), port: 443 };
        let host = Hostname::parse("a.example.org").expect("a hostname");
        let cluster = Cluster::Sni { frontend: id.clone(), hostname: host.clone(), port: None };
        let virtual_host = VirtualHost { hostname: host.clone(), routes: Vec::new() };
        let scope = Scope { frontend: id.clone(), listener: Some(host.clone()), virtual_host };
        let table = TableId { frontend: id.clone(), listener: None };
        let frontend =
            Frontend { id: id.clone(), addresses: Vec::new(), port: 443, kind: FrontendKind::Http { table } };
        for (key, resource) in [
            (ResourceKey::SniCluster(id.clone(), host.clone()), Resource::Cluster(cluster)),
            (ResourceKey::Scope(id.clone(), host), Resource::Scope(scope)),
            (ResourceKey::Frontend(id), Resource::Frontend(frontend)),
        ] {
            let encoded = encode(&resource);
            assert_eq!(name(&key), (encoded.kind(), encoded.name().to_owned()));
        }
    }
}
