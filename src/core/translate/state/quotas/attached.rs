//! The number of policies on Gateways, ListenerSets and routes.

use super::super::dirty::Dirty;
use super::{Quotas, one_too_many};
use gatewright_objects::inputs::{Kind, ObjectKey};
use gatewright_objects::limits::ObjectLimits;
use gatewright_objects::model::Reason;
use gatewright_objects::quota::Member;
use gatewright_objects::store::Store;

impl Quotas {
    /// Counts a policy that was put or deleted, and marks those whose verdict changes.
    pub(super) fn note_attached(&mut self, key: &ObjectKey, store: &Store, dirty: &mut Dirty) {
        let there = store.attached_policy(key);
        let member =
            there.map(|policy| Member::one(key.name.namespace.clone(), policy.meta.created));
        dirty.attached.extend(self.access_policies.set(key, member));
    }

    /// The limits of each object.
    pub(crate) fn of_objects(&self) -> &ObjectLimits {
        &self.limits.object
    }

    /// Why a policy on Gateways, ListenerSets and routes is one too many.
    pub(crate) fn attached_beyond(&self, key: &ObjectKey) -> Option<(Reason, String)> {
        let quota = match key.kind {
            Kind::TrafficPolicy => &self.backend_policies,
            _ => &self.access_policies,
        };
        if quota.has(key) {
            return None;
        }
        let namespace = &key.name.namespace;
        let limit = format!("policies {}", self.limits_of(namespace).policies);
        Some(one_too_many("policies", namespace, &limit))
    }
}
