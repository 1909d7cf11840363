//! ClusterTrustBundles, whether the API server serves them, and the objects that refer to them.

use super::Store;
use crate::inputs::ObjectKey;
use crate::model::ObjectName;
use crate::multimap::MultiMap;

impl Store {
    /// True if ClusterTrustBundles can exist: the API server serves them, or they come from
    /// manifests.
    pub fn has_trust_bundles(&self) -> bool {
        self.has_trust_bundles
    }

    /// The policies and the Gateways that refer to ClusterTrustBundles.
    pub fn users_of_trust_bundles(&self) -> (Vec<ObjectKey>, Vec<ObjectName>) {
        (
            of_bundles(&self.indexes.policies_by_reference),
            of_bundles(&self.indexes.gateways_by_roots),
        )
    }

    /// The names of all classes.
    pub fn class_names(&self) -> impl Iterator<Item = &ObjectName> {
        self.tables.classes.keys()
    }

    /// Sets whether ClusterTrustBundles can exist. Returns whether that changed.
    pub fn set_trust_bundles(&mut self, can_be: bool) -> bool {
        std::mem::replace(&mut self.has_trust_bundles, can_be) != can_be
    }
}

fn of_bundles<T: Ord + Clone>(users: &MultiMap<ObjectName, T>) -> Vec<T> {
    // Bundles have no namespace, and sort first.
    let all = users
        .from(ObjectName::new("", ""))
        .take_while(|(name, _)| name.namespace.is_empty());
    all.flat_map(|(_, users)| users).cloned().collect()
}
