//! The observed objects of the watches.

use std::collections::BTreeMap;

use crate::watch::observed::ObservedObject;
use gatewright_core::inputs::ObjectKey;

/// The observed objects, reduced to metadata and status.
#[derive(Default)]
pub(super) struct Objects {
    seen: BTreeMap<ObjectKey, Box<ObservedObject>>,
    /// The objects that cannot be parsed, with the reason.
    unreadable: BTreeMap<ObjectKey, String>,
}

impl Objects {
    /// Returns all observed objects.
    pub(super) fn seen(&self) -> &BTreeMap<ObjectKey, Box<ObservedObject>> {
        &self.seen
    }

    /// Returns an observed object.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&ObservedObject> {
        self.seen.get(key).map(|seen| &**seen)
    }

    /// Returns an observed object, to be replaced by a newer version.
    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut ObservedObject> {
        self.seen.get_mut(key).map(|seen| &mut **seen)
    }

    /// Stores an object that can be parsed. Returns whether it has changed.
    pub(super) fn see(&mut self, key: ObjectKey, seen: Box<ObservedObject>) -> bool {
        let old = self.seen.insert(key.clone(), seen);
        old.as_ref() != self.seen.get(&key)
    }

    /// Notes that an object can be parsed, or was deleted.
    pub(super) fn readable(&mut self, key: &ObjectKey) {
        self.unreadable.remove(key);
    }

    /// Notes that an object cannot be parsed. Returns whether the reason is new.
    pub(super) fn unreadable(&mut self, key: ObjectKey, why: String) -> bool {
        self.unreadable
            .insert(key, why.clone())
            .is_none_or(|before| before != why)
    }

    /// Removes an object that was deleted, or cannot be parsed any more.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.seen.remove(key);
    }
}
