//! What changes when an XTelemetryPolicy changes, or what it refers to.

use super::dirty::Dirty;
use crate::key::ParentKey;
use gatewright_objects::inputs::{Kind, ObjectKey};
use gatewright_objects::model::ObjectName;
use gatewright_objects::store::Store;

/// Marks the frontends of a Gateway, whose tracing may have changed, and the statuses of its
/// policies.
pub(crate) fn touch_gateway(gateway: &ObjectName, store: &Store, dirty: &mut Dirty) {
    dirty.bindings.insert(gateway.clone());
    dirty
        .uses
        .insert(ParentKey::Gateway(gateway.clone()).object());
    touch_statuses(gateway, store, dirty);
}

/// Marks the statuses of the policies of a Gateway.
pub(crate) fn touch_statuses(gateway: &ObjectName, store: &Store, dirty: &mut Dirty) {
    let policies = store.telemetry_policies(gateway);
    dirty
        .statuses
        .extend(policies.map(|policy| key(&policy.meta.name)));
}

/// Marks what depends on what a policy refers to.
pub(crate) fn touch_policy(policy: &ObjectName, store: &Store, dirty: &mut Dirty) {
    dirty.statuses.insert(key(policy));
    let policy = store.telemetry_policy(policy);
    for gateway in policy.iter().flat_map(|policy| &policy.gateways) {
        touch_gateway(gateway, store, dirty);
    }
}

/// Marks a Gateway that may have another policy, or none: its ports cost more or less then, and so
/// do those of its ListenerSets.
pub(crate) fn touch_traced(gateway: &ObjectName, store: &Store, dirty: &mut Dirty) {
    touch_gateway(gateway, store, dirty);
    dirty.parents.insert(ParentKey::Gateway(gateway.clone()));
    let sets = store.indexes().sets_by_gateway(gateway).cloned();
    dirty.parents.extend(sets.map(ParentKey::ListenerSet));
}

fn key(name: &ObjectName) -> ObjectKey {
    ObjectKey::new(Kind::XTelemetryPolicy, name.clone())
}
