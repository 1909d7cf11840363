//! One key, many values, in no order: where sets are as large as a tenant has routes. Else see [`MultiMap`](crate::multimap::MultiMap).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use foldhash::fast::RandomState;

/// A map of what is looked for all the time. Names come from tenants: the hash has a seed of its own in each map.
pub(super) type Map<K, V> = HashMap<K, V, RandomState>;
/// The same for a set.
pub(super) type Set<V> = HashSet<V, RandomState>;

/// A map from a key to a set of values that never keeps an empty set. For sets as large as a tenant has routes.
pub(super) struct Groups<K, V>(Map<K, Set<V>>);

impl<K, V> Default for Groups<K, V> {
    fn default() -> Self {
        Self(Map::default())
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

    /// Whether no key has values.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a key has values.
    pub(super) fn has(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// The values of a key.
    pub(super) fn of(&self, key: &K) -> impl Iterator<Item = &V> + use<'_, K, V> {
        self.0.get(key).into_iter().flatten()
    }
}
