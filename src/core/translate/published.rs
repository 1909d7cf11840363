//! The resources that a sequence of deltas leaves, for tests.

use std::collections::BTreeMap;

use crate::delta::{Delta, Resource, ResourceKey};
use gatewright_objects::model::{Frontend, FrontendId, Hostname, VirtualHost};

/// All resources that were handed out and not removed.
#[derive(Default)]
pub(crate) struct Published(BTreeMap<ResourceKey, Resource>);

impl Published {
    /// Takes a delta over.
    pub(crate) fn take(&mut self, delta: Delta) {
        for (key, resource) in delta.resources {
            match resource {
                Some(resource) => self.0.insert(key, resource),
                None => self.0.remove(&key),
            };
        }
    }

    /// The names of all secrets.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let keys = self.0.keys();
        keys.filter_map(|key| match key {
            ResourceKey::Secret(name) => Some(name.to_string()),
            _ => None,
        })
        .collect()
    }

    /// A frontend.
    pub(crate) fn frontend(&self, id: &FrontendId) -> Option<&Frontend> {
        match self.0.get(&ResourceKey::Frontend(id.clone())) {
            Some(Resource::Frontend(frontend)) => Some(frontend),
            _ => None,
        }
    }

    /// The hostnames in the tables of a frontend.
    pub(crate) fn tables(&self, id: &FrontendId) -> Vec<&Hostname> {
        let tables = self.0.values().filter_map(|resource| match resource {
            Resource::Table(table) => (table.id.frontend == *id).then_some(table),
            _ => None,
        });
        let hosts = tables.flat_map(|table| &table.virtual_hosts);
        hosts.map(|host| &host.hostname).collect()
    }

    /// The virtual hosts of the scopes of a frontend.
    pub(crate) fn scopes(&self, id: &FrontendId) -> BTreeMap<&Hostname, &VirtualHost> {
        let hosts = self
            .0
            .iter()
            .filter_map(|(key, resource)| match (key, resource) {
                (ResourceKey::Scope(frontend, hostname), Resource::Scope(scope)) => {
                    (frontend == id).then_some((hostname, &scope.virtual_host))
                }
                _ => None,
            });
        hosts.collect()
    }
}
