//! Policies on Gateways, ListenerSets and routes, and what they are attached to.

use std::sync::Arc;

use super::Store;
use crate::inputs::{AttachedPolicy, ObjectKey};

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
        }
    }
}
