//! Prints the differences of two results.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// The differences of two maps, for people.
pub(super) fn differences<K: Ord + Debug, V: PartialEq + Debug>(
    a: &BTreeMap<K, V>,
    b: &BTreeMap<K, V>,
) -> String {
    let keys: BTreeSet<&K> = a.keys().chain(b.keys()).collect();
    let differing = keys.into_iter().filter(|key| a.get(key) != b.get(key));
    differing
        .map(|key| {
            format!(
                "{key:?}:\n  got  {:?}\n  want {:?}\n",
                a.get(key),
                b.get(key)
            )
        })
        .collect()
}
