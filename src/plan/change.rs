//! A change of objects that is about to be made.

use std::collections::{BTreeMap, BTreeSet};

use gatewright_core::inputs::{Kind, Object, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::translate;

/// Objects that are written and removed.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The objects that are added, or take the place of those of the same kind, namespace and name.
    pub put: Vec<Object>,
    /// The objects that are removed.
    pub delete: BTreeSet<ObjectKey>,
}

impl Change {
    /// The change from one set of objects to another.
    pub fn between(from: &BTreeMap<ObjectKey, Object>, to: Vec<Object>) -> Self {
        let there: BTreeSet<ObjectKey> = to.iter().map(Object::key).collect();
        Self {
            delete: from
                .keys()
                .filter(|key| !there.contains(key))
                .cloned()
                .collect(),
            put: to,
        }
    }

    /// Returns whether an object goes: itself, or with its Namespace.
    fn removes(&self, key: &ObjectKey) -> bool {
        let namespace = ObjectName::new("", key.name.namespace.clone());
        self.delete.contains(key)
            || self
                .delete
                .contains(&ObjectKey::new(Kind::Namespace, namespace))
    }

    /// Gives objects the creation times of those that they take the place of. New ones are the
    /// youngest, so that they take nothing from others by their age.
    pub fn date(&mut self, present: &BTreeMap<ObjectKey, Object>, now: i64) {
        for object in &mut self.put {
            let mut old = present.get(&object.key()).cloned();
            let created = old.as_mut().and_then(Object::created_mut).map(|at| *at);
            if let Some(at) = object.created_mut() {
                *at = created.unwrap_or(now);
            }
        }
    }

    /// The changes of inputs, of which with a Namespace all that is in it goes.
    pub fn inputs(self, present: &BTreeMap<ObjectKey, Object>) -> Vec<translate::Change> {
        let put: BTreeSet<ObjectKey> = self.put.iter().map(Object::key).collect();
        let gone: Vec<ObjectKey> = present
            .keys()
            .filter(|key| self.removes(key) && !put.contains(key))
            .cloned()
            .collect();
        let put = self.put.into_iter().map(translate::Change::put);
        gone.into_iter()
            .map(translate::Change::delete)
            .chain(put)
            .collect()
    }
}
