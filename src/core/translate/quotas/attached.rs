//! The number of policies on Gateways, ListenerSets and routes.

use super::super::dirty::Dirty;
use super::Quotas;
use crate::inputs::ObjectKey;
use crate::model::Reason;
use crate::quota::Member;
use crate::store::Store;

impl Quotas {
    /// Counts a policy that was put or deleted, and marks those whose verdict changes.
    pub(super) fn note_attached(&mut self, key: &ObjectKey, store: &Store, dirty: &mut Dirty) {
        let there = store.attached_policy(key);
        let member = there.map(|policy| Member {
            group: key.name.namespace.clone(),
            created: policy.meta.created,
            weight: 1,
        });
        dirty.attached.extend(self.access_policies.set(key, member));
    }

    /// Why a policy on Gateways, ListenerSets and routes is one too many.
    pub(in super::super) fn attached_beyond(&self, key: &ObjectKey) -> Option<(Reason, String)> {
        if self.access_policies.has(key) {
            return None;
        }
        let namespace = &key.name.namespace;
        let text = format!(
            "the policies of namespace {namespace} up to this one, the oldest first, exceed \
             limits.namespace.policies {}; requests are answered 500",
            self.limits_of(namespace).policies
        );
        Some((Reason::LimitReached, text))
    }
}
