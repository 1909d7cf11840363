//! One key, many values, in no order.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// A map from a key to a set of values that never keeps an empty set. For sets as large as a tenant has routes.
pub(super) struct Groups<K, V>(HashMap<K, HashSet<V>>);

impl<K, V> Default for Groups<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V: Eq + Hash> Groups<K, V> {
    /// Adds a value.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.0.entry(key).or_default().insert(value);
    }

    /// Removes a value.
    pub(super) fn remove(&mut self, key: K, value: &V) {
        if let Entry::Occupied(mut values) = self.0.entry(key) {
            values.get_mut().remove(value);
            if values.get().is_empty() {
                values.remove();
            }
        }
    }

    /// The values of a key.
    pub(super) fn of(&self, key: &K) -> impl Iterator<Item = &V> + use<'_, K, V> {
        self.0.get(key).into_iter().flatten()
    }
}
