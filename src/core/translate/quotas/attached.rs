//! The number of policies on Gateways, ListenerSets and routes.

use super::super::dirty::Dirty;
use super::{Quotas, one_too_many};
use crate::inputs::ObjectKey;
use crate::model::Reason;
use crate::quota::Member;
use crate::store::Store;

impl Quotas {
    /// Counts a policy that was put or deleted, and marks those whose verdict changes.
    pub(super) fn note_attached(&mut self, key: &ObjectKey, store: &Store, dirty: &mut Dirty) {
        let there = store.attached_policy(key);
        let member =
            there.map(|policy| Member::one(key.name.namespace.clone(), policy.meta.created));
        dirty.attached.extend(self.access_policies.set(key, member));
    }

    /// Why a policy on Gateways, ListenerSets and routes is one too many.
    pub(in super::super) fn attached_beyond(&self, key: &ObjectKey) -> Option<(Reason, String)> {
        if self.access_policies.has(key) {
            return None;
        }
        let namespace = &key.name.namespace;
        let limit = format!("policies {}", self.limits_of(namespace).policies);
        Some(one_too_many("policies", namespace, &limit))
    }
}
