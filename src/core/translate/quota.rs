//! Quotas: which of many members of a group are within its limits. Pure.
//!
//! The members of a group are ordered, the oldest first. As many as fit are within the quota; all members behind the
//! first that does not fit are beyond it. So the result depends on the members alone, not on the order in which they
//! were added, and the cost of a change is the number of members whose verdict changes.

use std::collections::BTreeMap;

/// The weight of a member, in each of the quantities that are limited together.
pub(super) type Weight<const N: usize> = [u64; N];

/// The members of all groups.
#[derive(Debug)]
pub(super) struct Quota<G, K, const N: usize> {
    most: Weight<N>,
    groups: BTreeMap<G, Ledger<K, N>>,
    members: BTreeMap<K, Member<G, N>>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member<G, const N: usize> {
    /// Its group.
    pub(super) group: G,
    /// Its creation time: the smaller is first.
    pub(super) created: i64,
    /// Its weight.
    pub(super) weight: Weight<N>,
}

#[derive(Debug)]
struct Ledger<K, const N: usize> {
    used: Weight<N>,
    within: BTreeMap<(i64, K), Weight<N>>,
    beyond: BTreeMap<(i64, K), Weight<N>>,
}

impl<G: Ord + Clone, K: Ord + Clone, const N: usize> Quota<G, K, N> {
    /// Quotas without members; every group may have `most`.
    pub(super) fn new(most: Weight<N>) -> Self {
        Self { most, groups: BTreeMap::new(), members: BTreeMap::new() }
    }

    /// Adds, changes or removes a member. Returns all other members whose verdict changed.
    pub(super) fn set(&mut self, key: &K, member: Option<Member<G, N>>) -> Vec<K> {
        if self.members.get(key) == member.as_ref() {
            return Vec::new();
        }
        let mut moved = Vec::new();
        if let Some(old) = self.members.remove(key)
            && let Some(ledger) = self.groups.get_mut(&old.group)
        {
            ledger.remove(&(old.created, key.clone()));
            ledger.settle(&self.most, &mut moved);
            if ledger.within.is_empty() && ledger.beyond.is_empty() {
                self.groups.remove(&old.group);
            }
        }
        if let Some(new) = member {
            let ledger = self.groups.entry(new.group.clone()).or_insert_with(Ledger::new);
            ledger.insert((new.created, key.clone()), new.weight);
            ledger.settle(&self.most, &mut moved);
            self.members.insert(key.clone(), new);
        }
        moved.retain(|other| other != key);
        moved.sort();
        // A member that moved beyond and back again has the same verdict.
        let mut changed = Vec::new();
        for run in moved.chunk_by(|a, b| a == b).filter(|run| run.len() % 2 == 1) {
            changed.extend(run.first().cloned());
        }
        changed
    }

    /// The group of a member.
    pub(super) fn group(&self, key: &K) -> Option<&G> {
        self.members.get(key).map(|member| &member.group)
    }

    /// True if a member is within the quota. An object that is no member is.
    pub(super) fn has(&self, key: &K) -> bool {
        let Some(member) = self.members.get(key) else { return true };
        let ledger = self.groups.get(&member.group);
        ledger.is_none_or(|ledger| !ledger.beyond.contains_key(&(member.created, key.clone())))
    }
}

impl<K: Ord + Clone, const N: usize> Ledger<K, N> {
    fn new() -> Self {
        Self { used: [0; N], within: BTreeMap::new(), beyond: BTreeMap::new() }
    }

    fn insert(&mut self, rank: (i64, K), weight: Weight<N>) {
        // Behind a member that does not fit no other fits; `settle` checks the rest.
        if self.beyond.first_key_value().is_some_and(|(first, _)| *first < rank) {
            self.beyond.insert(rank, weight);
        } else {
            self.take(&weight);
            self.within.insert(rank, weight);
        }
    }

    fn remove(&mut self, rank: &(i64, K)) {
        self.beyond.remove(rank);
        if let Some(weight) = self.within.remove(rank) {
            self.give_back(&weight);
        }
    }

    /// Moves members until as many as fit are within.
    fn settle(&mut self, most: &Weight<N>, moved: &mut Vec<K>) {
        while (0..N).any(|thing| self.used[thing] > most[thing])
            && let Some((rank, weight)) = self.within.pop_last()
        {
            self.give_back(&weight);
            moved.push(rank.1.clone());
            self.beyond.insert(rank, weight);
        }
        while let Some((_, weight)) = self.beyond.first_key_value()
            && (0..N).all(|thing| self.used[thing].saturating_add(weight[thing]) <= most[thing])
            && let Some((rank, weight)) = self.beyond.pop_first()
        {
            self.take(&weight);
            moved.push(rank.1.clone());
            self.within.insert(rank, weight);
        }
    }

    fn take(&mut self, weight: &Weight<N>) {
        (0..N).for_each(|thing| self.used[thing] = self.used[thing].saturating_add(weight[thing]));
    }

    fn give_back(&mut self, weight: &Weight<N>) {
        (0..N).for_each(|thing| self.used[thing] = self.used[thing].saturating_sub(weight[thing]));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(group: u8, created: i64, weight: Weight<2>) -> Member<u8, 2> {
        Member { group, created, weight }
    }

    #[test]
    fn the_oldest_have_what_fits_and_who_goes_makes_room() {
        let mut quota: Quota<u8, &str, 2> = Quota::new([2, 10]);
        assert!(quota.set(&"b", Some(member(0, 2, [1, 1]))).is_empty());
        assert!(quota.set(&"c", Some(member(0, 3, [1, 1]))).is_empty());
        assert_eq!(quota.set(&"a", Some(member(0, 1, [1, 1]))), ["c"]);
        assert!(quota.has(&"a") && quota.has(&"b") && !quota.has(&"c"));
        assert_eq!(quota.set(&"b", None), ["c"]);
        assert_eq!(quota.set(&"a", Some(member(0, 1, [1, 11]))), ["c"]);
        assert!(!quota.has(&"a") && !quota.has(&"c"));
        assert!(quota.set(&"d", Some(member(1, 0, [2, 10]))).is_empty() && quota.has(&"d"));
    }

    proptest! {
        #[test]
        fn verdicts_depend_on_the_members_alone(
            steps in proptest::collection::vec((0u8..8, any::<bool>(), 0u8..2, 0i64..4, 0u64..4, 0u64..8), 1..60),
        ) {
            let most = [5, 9];
            let mut quota: Quota<u8, u8, 2> = Quota::new(most);
            let mut members: BTreeMap<u8, Member<u8, 2>> = BTreeMap::new();
            for (key, there, group, created, one, two) in steps {
                let before: BTreeMap<u8, bool> = members.keys().map(|key| (*key, quota.has(key))).collect();
                let new = there.then(|| member(group, created, [one, two]));
                let told = quota.set(&key, new.clone());
                match new {
                    Some(new) => members.insert(key, new),
                    None => members.remove(&key),
                };
                for (other, member) in &members {
                    let mut group: Vec<_> =
                        members.iter().filter(|(_, m)| m.group == member.group).map(|(k, m)| ((m.created, *k), m.weight)).collect();
                    group.sort();
                    let mut used = [0; 2];
                    let mut fits = true;
                    for (rank, weight) in group {
                        used = [used[0] + weight[0], used[1] + weight[1]];
                        fits = fits && used[0] <= most[0] && used[1] <= most[1];
                        if rank == (member.created, *other) { break }
                    }
                    prop_assert_eq!(quota.has(other), fits);
                    if *other != key {
                        prop_assert_eq!(told.contains(other), before[other] != fits);
                    }
                }
            }
        }
    }
}
