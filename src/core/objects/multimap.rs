//! One key, many values, both sorted.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// A map from a key to a sorted set of values that never keeps an empty set.
///
/// Nearly every key has one value, which is stored without a tree of its own.
#[derive(Clone, Debug)]
pub struct MultiMap<K, V>(BTreeMap<K, Values<V>>);

#[derive(Clone, Debug)]
#[allow(
    clippy::box_collection,
    reason = "there are hundreds of thousands of these, and few have many values"
)]
enum Values<V> {
    One(V),
    /// A pointer, so that this rare case does not make every entry larger.
    Many(Box<BTreeSet<V>>),
}

impl<K, V> Default for MultiMap<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V> Values<V> {
    fn iter(&self) -> impl Iterator<Item = &V> {
        let (one, many) = match self {
            Values::One(value) => (Some(value), None),
            Values::Many(values) => (None, Some(values.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

impl<K: Ord + Clone, V: Ord + Clone> MultiMap<K, V> {
    /// Adds a value.
    pub fn insert(&mut self, key: K, value: V) {
        match self.0.entry(key) {
            Entry::Vacant(slot) => {
                slot.insert(Values::One(value));
            }
            Entry::Occupied(mut slot) => match slot.get_mut() {
                Values::Many(values) => {
                    values.insert(value);
                }
                one @ Values::One(_) => {
                    let mut values: BTreeSet<V> = one.iter().cloned().collect();
                    if values.insert(value) {
                        *one = Values::Many(Box::new(values));
                    }
                }
            },
        }
    }

    /// The keys, each of which has values.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    /// Removes a value.
    pub fn remove(&mut self, key: &K, value: &V) {
        match self.0.get_mut(key) {
            Some(Values::One(only)) if only == value => {
                self.0.remove(key);
            }
            Some(slot @ Values::Many(_)) => {
                let mut values: Box<BTreeSet<V>> = match slot {
                    Values::Many(values) => std::mem::take(values),
                    Values::One(_) => Box::default(),
                };
                values.remove(value);
                *slot = match (values.len(), values.first()) {
                    (1, Some(last)) => Values::One(last.clone()),
                    _ => Values::Many(values),
                };
            }
            Some(Values::One(_)) | None => {}
        }
    }

    /// Adds or removes a value.
    pub fn set(&mut self, key: &K, value: &V, there: bool) {
        if there {
            self.insert(key.clone(), value.clone());
        } else {
            self.remove(key, value);
        }
    }

    /// The values of a key, sorted.
    pub fn of<'a, Q: Ord + ?Sized>(
        &'a self,
        key: &Q,
    ) -> impl Iterator<Item = &'a V> + use<'a, K, V, Q>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.0.get(key).into_iter().flat_map(Values::iter)
    }

    /// True if a key has a value.
    pub fn contains(&self, key: &K, value: &V) -> bool {
        match self.0.get(key) {
            Some(Values::One(only)) => only == value,
            Some(Values::Many(values)) => values.contains(value),
            None => false,
        }
    }

    /// True if no key has a value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest value of a key.
    pub fn first(&self, key: &K) -> Option<&V> {
        self.of(key).next()
    }

    /// The smallest value of a key from `start` on.
    pub fn next(&self, key: &K, start: &V) -> Option<&V> {
        match self.0.get(key)? {
            Values::One(only) => (only >= start).then_some(only),
            Values::Many(values) => values.range::<V, _>(start..).next(),
        }
    }

    /// The number of values of a key.
    pub fn count(&self, key: &K) -> usize {
        match self.0.get(key) {
            Some(Values::One(_)) => 1,
            Some(Values::Many(values)) => values.len(),
            None => 0,
        }
    }

    /// Keys from `start` on with their values, sorted.
    pub fn from(&self, start: K) -> impl Iterator<Item = (&K, impl Iterator<Item = &V>)> {
        self.0
            .range(start..)
            .map(|(key, values)| (key, values.iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map_of_sets(steps in proptest::collection::vec((0u8..3, 0u8..4, any::<bool>()), 0..60)) {
            let mut index = MultiMap::default();
            let mut model: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
            for (key, value, insert) in steps {
                if insert {
                    index.insert(key, value);
                    model.entry(key).or_default().insert(value);
                } else {
                    index.remove(&key, &value);
                    model.entry(key).or_default().remove(&value);
                }
                model.retain(|_, values| !values.is_empty());
                let got: BTreeMap<u8, BTreeSet<u8>> =
                    index.from(0).map(|(key, values)| (*key, values.copied().collect())).collect();
                prop_assert_eq!(&got, &model);
                prop_assert_eq!(index.count(&key), model.get(&key).map_or(0, BTreeSet::len));
                prop_assert_eq!(index.first(&key), model.get(&key).and_then(BTreeSet::first));
            }
        }
    }
}
