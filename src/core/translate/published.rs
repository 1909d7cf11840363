//! The resources that a sequence of deltas leaves, for tests.

use std::collections::BTreeMap;

use super::delta::{Delta, Resource, ResourceKey};
use crate::model::{FrontendId, Hostname, VirtualHost};

/// All resources that were handed out and not removed.
#[derive(Default)]
pub(super) struct Published(BTreeMap<ResourceKey, Resource>);

impl Published {
    /// Takes a delta over.
    pub(super) fn take(&mut self, delta: Delta) {
        for (key, resource) in delta.resources {
            match resource {
                Some(resource) => self.0.insert(key, resource),
                None => self.0.remove(&key),
            };
        }
    }

    /// The virtual hosts of the scopes of a frontend.
    pub(super) fn scopes(&self, id: &FrontendId) -> BTreeMap<&Hostname, &VirtualHost> {
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
