//! Policies on Gateways, ListenerSets and routes, and what they are attached to.

use std::sync::Arc;

use super::tables::Indexed;
use super::{Replaced, Store};
use crate::inputs::{AttachedPolicy, ObjectKey, Policy};
use crate::model::ObjectName;

impl Store {
    /// The policies on Gateways, ListenerSets and routes that refer to a Secret, ConfigMap or
    /// Service of this name.
    pub fn attached_by_content(&self, name: &ObjectName) -> impl Iterator<Item = &ObjectKey> {
        self.indexes.attached_by_content.of(name)
    }

    /// The policies on Gateways, ListenerSets and routes that refer into a namespace from another.
    pub fn attached_across(&self, namespace: &Arc<str>) -> impl Iterator<Item = &ObjectKey> {
        self.indexes.attached_across.of(namespace)
    }
}

impl Indexed for AttachedPolicy {
    fn index(&self, store: &mut Store, there: bool) {
        let key = self.key();
        let indexes = &mut store.indexes;
        for target in &self.targets {
            indexes.attached_by_target.set(&target.object, &key, there);
        }
        for reference in self.references() {
            let name = &reference.name;
            indexes.attached_by_content.set(name, &key, there);
            if name.namespace != key.name.namespace {
                indexes.attached_across.set(&name.namespace, &key, there);
            }
        }
    }

    /// A TrafficPolicy is a policy on Services, or one of these.
    fn replaced(store: &mut Store, _: Option<&Arc<Self>>, new: Option<&Arc<Self>>) -> Replaced {
        Replaced {
            policy: new.and_then(|new| store.remove::<Policy>(&new.key())),
            ..Replaced::default()
        }
    }
}
