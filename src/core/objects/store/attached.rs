//! Policies on Gateways, ListenerSets and routes, and what they are attached to.

use std::sync::Arc;

use super::Store;
use crate::inputs::{AttachedPolicy, ObjectKey};
use crate::model::ObjectName;

impl Store {
    /// A policy on Gateways, ListenerSets and routes by kind and name.
    pub fn attached_policy(&self, key: &ObjectKey) -> Option<&Arc<AttachedPolicy>> {
        self.attached.get(key)
    }

    /// Removes a policy. A TrafficPolicy is a policy on Services, or one of these.
    pub(super) fn remove_attached(&mut self, key: &ObjectKey) -> Option<Arc<AttachedPolicy>> {
        let old = self.attached.remove(key)?;
        self.index_attached(Some(&old), None);
        Some(old)
    }

    /// The policies on Gateways, ListenerSets and routes that refer to a Secret, ConfigMap or
    /// Service of this name.
    pub fn attached_by_content(&self, name: &ObjectName) -> impl Iterator<Item = &ObjectKey> {
        self.indexes.attached_by_content.of(name)
    }

    /// The policies on Gateways, ListenerSets and routes that refer into a namespace from another.
    pub fn attached_across(&self, namespace: &Arc<str>) -> impl Iterator<Item = &ObjectKey> {
        self.indexes.attached_across.of(namespace)
    }

    pub(super) fn index_attached(
        &mut self,
        old: Option<&AttachedPolicy>,
        new: Option<&AttachedPolicy>,
    ) {
        for (policy, there) in [(old, false), (new, true)] {
            let Some(policy) = policy else { continue };
            let key = policy.key();
            for target in &policy.targets {
                self.indexes
                    .attached_by_target
                    .set(&target.object, &key, there);
            }
            for reference in policy.references() {
                let name = &reference.name;
                self.indexes.attached_by_content.set(name, &key, there);
                if name.namespace != key.name.namespace {
                    self.indexes
                        .attached_across
                        .set(&name.namespace, &key, there);
                }
            }
        }
    }
}
