//! One key, many values, in no order: for sets as large as a tenant has routes. Else see
//! [`MultiMap`](gatewright_objects::multimap::MultiMap).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use foldhash::fast::RandomState;

/// A hash map for frequent look-ups. Tenants choose the keys, so each map has a hash seed of its
/// own.
pub(crate) type Map<K, V> = HashMap<K, V, RandomState>;
/// A hash set for frequent look-ups, with a hash seed of its own.
pub(crate) type Set<V> = HashSet<V, RandomState>;

/// A map from a key to a set of values that never keeps an empty set; for sets as large as a tenant
/// has routes.
pub(crate) struct Groups<K, V>(Map<K, Set<V>>);

impl<K, V> Default for Groups<K, V> {
    fn default() -> Self {
        Self(Map::default())
    }
}

impl<K: Eq + Hash, V: Eq + Hash> Groups<K, V> {
    /// Adds a value.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.0.entry(key).or_default().insert(value);
    }

    /// Removes a value.
    pub(crate) fn remove(&mut self, key: K, value: &V) {
        if let Entry::Occupied(mut values) = self.0.entry(key) {
            values.get_mut().remove(value);
            if values.get().is_empty() {
                values.remove();
            }
        }
    }

    /// True if no key has values.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a key has values.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// The values of a key.
    pub(crate) fn of(&self, key: &K) -> impl Iterator<Item = &V> + use<'_, K, V> {
        self.0.get(key).into_iter().flatten()
    }
}
