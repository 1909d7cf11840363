//! The objects that watches have told of.

use std::collections::BTreeMap;

use crate::watch::observed::ObservedObject;
use gatewright_core::inputs::ObjectKey;

/// Objects as they are in the cluster, as far as their statuses and versions go.
#[derive(Default)]
pub(super) struct Objects {
    seen: BTreeMap<ObjectKey, Box<ObservedObject>>,
    /// Objects that cannot be read, and why not.
    unreadable: BTreeMap<ObjectKey, String>,
}

impl Objects {
    /// All of them.
    pub(super) fn seen(&self) -> &BTreeMap<ObjectKey, Box<ObservedObject>> {
        &self.seen
    }

    /// One of them.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&ObservedObject> {
        self.seen.get(key).map(|seen| &**seen)
    }

    /// The same, to be replaced by a newer version.
    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut ObservedObject> {
        self.seen.get_mut(key).map(|seen| &mut **seen)
    }

    /// Takes in one that can be read; whether it is different from before.
    pub(super) fn see(&mut self, key: ObjectKey, seen: Box<ObservedObject>) -> bool {
        let old = self.seen.insert(key.clone(), seen);
        old.as_ref() != self.seen.get(&key)
    }

    /// Takes in that one can be read, or is gone.
    pub(super) fn readable(&mut self, key: &ObjectKey) {
        self.unreadable.remove(key);
    }

    /// Takes in that one cannot be read any more; whether that is new.
    pub(super) fn unreadable(&mut self, key: ObjectKey, why: String) -> bool {
        self.unreadable.insert(key, why.clone()).is_none_or(|before| before != why)
    }

    /// Forgets one that is gone, or cannot be read any more.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.seen.remove(key);
    }
}
