//! Policies, and the Services that they are about.

use std::sync::Arc;

use super::Store;
use crate::inputs::{ObjectKey, Policy};

impl Store {
    /// A policy by kind and name.
    pub fn policy(&self, key: &ObjectKey) -> Option<&Arc<Policy>> {
        self.policies.get(key)
    }

    pub(super) fn remove_policy(&mut self, key: &ObjectKey) -> Option<Arc<Policy>> {
        let old = self.policies.remove(key)?;
        self.index_policy(Some(&old), None);
        Some(old)
    }

    pub(super) fn index_policy(&mut self, old: Option<&Policy>, new: Option<&Policy>) {
        for (policy, there) in [(old, false), (new, true)] {
            let Some(policy) = policy else { continue };
            let key = policy.key();
            for target in &policy.targets {
                self.indexes
                    .policies_by_service
                    .set(&target.service, &key, there);
            }
            for reference in policy.references() {
                self.indexes
                    .policies_by_roots
                    .set(&reference.name, &key, there);
            }
        }
    }
}
