//! From a [`Delta`] of the model to an update of the xDS cache. Pure.

use xds::{Kind, Resource as Encoded, Update};

use crate::envoy::{self, ResourceName};
use crate::model::ClusterId;
use crate::translate::{Delta, Resource, ResourceKey};

/// Encodes what changed.
pub fn update(delta: &Delta) -> Update {
    let mut update = Update::default();
    for (key, resource) in &delta.resources {
        match resource {
            Some(resource) => update.upserts.push(encode(resource)),
            None => update.removals.push(name(key)),
        }
    }
    update
}

/// One resource as it is sent.
pub fn encode(resource: &Resource) -> Encoded {
    match resource {
        Resource::Cluster(cluster) => Encoded::new(cluster.resource_name(), &envoy::cluster(cluster)),
        // The addresses are kept once, however many clusters lead to one Service port.
        Resource::Endpoints(endpoints) => {
            let endpoints = endpoints.clone();
            Encoded::made(endpoints.resource_name(), move || envoy::endpoints(&endpoints))
        }
        // The certificate is at hand as long as the engine has its Secret: it is not kept a second time.
        Resource::Secret(secret) => {
            let secret = secret.clone();
            Encoded::made(secret.resource_name(), move || envoy::secret(&secret))
        }
        Resource::Scope(scope) => Encoded::new(scope.resource_name(), &envoy::scope(scope)),
        Resource::Table(table) => Encoded::new(table.resource_name(), &envoy::table(table)),
        Resource::Frontend(frontend) => Encoded::new(frontend.resource_name(), &envoy::listener(frontend)),
    }
}

/// Type and name of a resource on the wire.
pub fn name(key: &ResourceKey) -> (Kind, String) {
    match key {
        ResourceKey::Backend(id) => (Kind::Cluster, id.to_string()),
        ResourceKey::SniCluster(frontend, hostname) => {
            (Kind::Cluster, ClusterId::Sni(frontend.clone(), hostname.clone()).to_string())
        }
        ResourceKey::Endpoints(cluster) => (Kind::Endpoints, cluster.to_string()),
        ResourceKey::Secret(name) => (Kind::Secret, name.to_string()),
        ResourceKey::Scope(frontend, hostname) => (Kind::Scope, format!("{frontend}|{hostname}")),
        ResourceKey::Table(table) => (Kind::Route, table.resource_name()),
        ResourceKey::Frontend(id) => (Kind::Listener, id.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Cluster, Endpoints, Frontend, FrontendId, FrontendKind, Hostname, ObjectName, Scope, TableId, VirtualHost,
    };

    /// A resource is taken back under the name it was sent by.
    #[test]
    fn keys_and_resources_have_the_same_names() {
        let id = FrontendId { gateway: ObjectName::new("infra", "edge"), port: 443 };
        let host = Hostname::parse("a.example.org").expect("a hostname");
        let cluster = Cluster::Sni { frontend: id.clone(), hostname: host.clone(), port: None };
        let virtual_host = VirtualHost { hostname: host.clone(), routes: Vec::new() };
        let scope = Scope { frontend: id.clone(), listener: Some(host.clone()), virtual_host };
        let table = TableId { frontend: id.clone(), listener: None };
        let frontend = Frontend {
            id: id.clone(),
            addresses: Vec::new(),
            port: 443,
            cdn_id: "".into(),
            kind: FrontendKind::Http { table },
        };
        let endpoints = Endpoints { cluster: cluster.id(), addresses: [].into() };
        for (key, resource) in [
            (ResourceKey::Endpoints(cluster.id()), Resource::Endpoints(endpoints)),
            (ResourceKey::SniCluster(id.clone(), host.clone()), Resource::Cluster(cluster)),
            (ResourceKey::Scope(id.clone(), host), Resource::Scope(scope)),
            (ResourceKey::Frontend(id), Resource::Frontend(frontend)),
        ] {
            let encoded = encode(&resource);
            assert_eq!(name(&key), (encoded.kind(), encoded.name().to_owned()));
        }
    }
}
