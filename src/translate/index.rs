//! One key, many values, both sorted.

use std::collections::{BTreeMap, BTreeSet};

/// A map from a key to a sorted set of values that never keeps an empty set.
#[derive(Clone, Debug)]
pub(crate) struct Index<K, V>(BTreeMap<K, BTreeSet<V>>);

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone, V: Ord + Clone> Index<K, V> {
    /// Adds a value; whether it was new.
    pub(crate) fn insert(&mut self, key: K, value: V) -> bool {
        self.0.entry(key).or_default().insert(value)
    }

    /// Removes a value; whether it was there.
    pub(crate) fn remove(&mut self, key: &K, value: &V) -> bool {
        let Some(set) = self.0.get_mut(key) else { return false };
        let was = set.remove(value);
        if set.is_empty() {
            self.0.remove(key);
        }
        was
    }

    /// The values of a key, sorted.
    pub(crate) fn of(&self, key: &K) -> impl Iterator<Item = &V> {
        self.0.get(key).into_iter().flatten()
    }

    /// Whether a key has a value.
    pub(crate) fn contains(&self, key: &K, value: &V) -> bool {
        self.0.get(key).is_some_and(|set| set.contains(value))
    }

    /// The smallest value of a key.
    pub(crate) fn first(&self, key: &K) -> Option<&V> {
        self.0.get(key)?.first()
    }

    /// How many values a key has.
    pub(crate) fn count(&self, key: &K) -> usize {
        self.0.get(key).map_or(0, BTreeSet::len)
    }
}
