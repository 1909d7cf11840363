//! Quotas: which of many members of a group are within its limits. Pure.
//!
//! The members of a group are ordered, the oldest first. As many as fit are within the quota; all
//! members behind the first that does not fit are beyond it. So the result depends on the members
//! alone, not on the order in which they were added, and the cost of a change is the number of
//! members whose verdict changes.

use std::borrow::Borrow;
use std::collections::BTreeMap;

/// The members of all groups.
#[derive(Debug)]
pub struct Quota<G, K, R = i64> {
    most: u64,
    /// Groups that may have more or less.
    exceptions: BTreeMap<G, u64>,
    groups: BTreeMap<G, Group<K, R>>,
    members: BTreeMap<K, Member<G, R>>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<G, R = i64> {
    /// Its group.
    pub group: G,
    /// Its creation time, or what ranks it otherwise: the smaller is first.
    pub created: R,
    /// Its weight.
    pub weight: u64,
}

impl<G> Member<G> {
    /// A member that counts as one.
    pub fn one(group: G, created: i64) -> Self {
        Self {
            group,
            created,
            weight: 1,
        }
    }
}

#[derive(Debug)]
struct Group<K, R> {
    used: u64,
    within: BTreeMap<(R, K), u64>,
    beyond: BTreeMap<(R, K), u64>,
}

impl<G: Ord + Clone, K: Ord + Clone, R: Ord + Copy> Quota<G, K, R> {
    /// Quotas without members; every group may have `most`.
    pub fn new(most: u64) -> Self {
        Self {
            most,
            exceptions: BTreeMap::new(),
            groups: BTreeMap::new(),
            members: BTreeMap::new(),
        }
    }

    /// Sets how much a group may have. Returns the members whose verdict changed.
    pub fn allow(&mut self, group: &G, most: u64) -> Vec<K> {
        if most == self.most {
            self.exceptions.remove(group);
        } else {
            self.exceptions.insert(group.clone(), most);
        }
        let mut moved = Vec::new();
        if let Some(members) = self.groups.get_mut(group) {
            members.fit(most, &mut moved);
        }
        moved
    }

    /// Adds, changes or removes a member. Returns all other members whose verdict changed.
    pub fn set(&mut self, key: &K, member: Option<Member<G, R>>) -> Vec<K> {
        if self.members.get(key) == member.as_ref() {
            return Vec::new();
        }
        let mut moved = Vec::new();
        if let Some(old) = self.members.remove(key) {
            let most = self.most(&old.group);
            if let Some(members) = self.groups.get_mut(&old.group) {
                members.remove(&(old.created, key.clone()));
                members.fit(most, &mut moved);
                if members.within.is_empty() && members.beyond.is_empty() {
                    self.groups.remove(&old.group);
                }
            }
        }
        if let Some(new) = member {
            let most = self.most(&new.group);
            let members = self
                .groups
                .entry(new.group.clone())
                .or_insert_with(Group::new);
            members.insert((new.created, key.clone()), new.weight);
            members.fit(most, &mut moved);
            self.members.insert(key.clone(), new);
        }
        moved.retain(|other| other != key);
        moved.sort();
        // A member that moved beyond and back again has the same verdict.
        let mut changed = Vec::new();
        for run in moved
            .chunk_by(|a, b| a == b)
            .filter(|run| run.len() % 2 == 1)
        {
            changed.extend(run.first().cloned());
        }
        changed
    }

    /// How much a group may have.
    pub fn most(&self, group: &G) -> u64 {
        self.exceptions.get(group).copied().unwrap_or(self.most)
    }

    /// How much the members of a group have that are within the quota.
    pub fn used(&self, group: &G) -> u64 {
        self.groups.get(group).map_or(0, |members| members.used)
    }

    /// The members of a group that are within the quota, with their weights.
    pub fn within<Q: Ord + ?Sized>(&self, group: &Q) -> impl Iterator<Item = (&K, u64)>
    where
        G: Borrow<Q>,
    {
        let members = self.groups.get(group).into_iter();
        members.flat_map(|members| {
            members
                .within
                .iter()
                .map(|((_, key), weight)| (key, *weight))
        })
    }

    /// The members of a group.
    pub fn of_group(&self, group: &G) -> impl Iterator<Item = &K> {
        let members = self.groups.get(group).into_iter();
        members.flat_map(|members| {
            let within = members.within.keys();
            within.chain(members.beyond.keys()).map(|(_, key)| key)
        })
    }

    /// The members of a group that are beyond the quota.
    pub fn beyond(&self, group: &G) -> impl Iterator<Item = &K> {
        let members = self.groups.get(group).into_iter();
        members.flat_map(|members| members.beyond.keys().map(|(_, key)| key))
    }

    /// The groups with members.
    pub fn groups(&self) -> impl Iterator<Item = &G> {
        self.groups.keys()
    }

    /// A member.
    pub fn member(&self, key: &K) -> Option<&Member<G, R>> {
        self.members.get(key)
    }

    /// True if a member is within the quota. An object that is no member is.
    pub fn has(&self, key: &K) -> bool {
        let Some(member) = self.members.get(key) else {
            return true;
        };
        let members = self.groups.get(&member.group);
        members.is_none_or(|members| !members.beyond.contains_key(&(member.created, key.clone())))
    }
}

impl<K: Ord + Clone, R: Ord> Group<K, R> {
    fn new() -> Self {
        Self {
            used: 0,
            within: BTreeMap::new(),
            beyond: BTreeMap::new(),
        }
    }

    fn insert(&mut self, rank: (R, K), weight: u64) {
        // Behind a member that does not fit no other fits; `fit` checks the rest.
        if self
            .beyond
            .first_key_value()
            .is_some_and(|(first, _)| *first < rank)
        {
            self.beyond.insert(rank, weight);
        } else {
            self.used = self.used.saturating_add(weight);
            self.within.insert(rank, weight);
        }
    }

    fn remove(&mut self, rank: &(R, K)) {
        self.beyond.remove(rank);
        if let Some(weight) = self.within.remove(rank) {
            self.used = self.used.saturating_sub(weight);
        }
    }

    /// Moves members until as many as fit are within.
    fn fit(&mut self, most: u64, moved: &mut Vec<K>) {
        while self.used > most
            && let Some((rank, weight)) = self.within.pop_last()
        {
            self.used = self.used.saturating_sub(weight);
            moved.push(rank.1.clone());
            self.beyond.insert(rank, weight);
        }
        while let Some((_, weight)) = self.beyond.first_key_value()
            && self.used.saturating_add(*weight) <= most
            && let Some((rank, weight)) = self.beyond.pop_first()
        {
            self.used = self.used.saturating_add(weight);
            moved.push(rank.1.clone());
            self.within.insert(rank, weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(group: u8, created: i64, weight: u64) -> Member<u8> {
        Member {
            group,
            created,
            weight,
        }
    }

    #[test]
    fn the_oldest_have_what_fits_and_who_goes_makes_room() {
        let mut quota: Quota<u8, &str> = Quota::new(10);
        assert!(quota.set(&"b", Some(member(0, 2, 5))).is_empty());
        assert!(quota.set(&"c", Some(member(0, 3, 5))).is_empty());
        assert_eq!(quota.set(&"a", Some(member(0, 1, 1))), ["c"]);
        assert!(quota.has(&"a") && quota.has(&"b") && !quota.has(&"c"));
        assert_eq!(quota.used(&0), 6);
        assert_eq!(quota.set(&"b", None), ["c"]);
        assert_eq!(quota.set(&"a", Some(member(0, 1, 11))), ["c"]);
        assert!(!quota.has(&"a") && !quota.has(&"c"));
        assert!(quota.set(&"d", Some(member(1, 0, 10))).is_empty() && quota.has(&"d"));
    }

    #[test]
    fn a_group_may_be_allowed_more_or_less() {
        let mut quota: Quota<u8, &str> = Quota::new(10);
        quota.set(&"a", Some(member(0, 1, 8)));
        quota.set(&"b", Some(member(0, 2, 8)));
        assert_eq!(quota.allow(&0, 16), ["b"]);
        assert_eq!(quota.allow(&0, 7), ["b", "a"]);
        assert!(quota.set(&"c", Some(member(1, 0, 10))).is_empty() && quota.has(&"c"));
        assert_eq!(quota.allow(&0, 10), ["a"]);
    }

    proptest! {
        #[test]
        fn verdicts_depend_on_the_members_alone(
            steps in proptest::collection::vec((0u8..8, any::<bool>(), 0u8..2, 0i64..4, 0u64..8, 0u64..12), 1..60),
        ) {
            let mut quota: Quota<u8, u8> = Quota::new(9);
            let mut members: BTreeMap<u8, Member<u8>> = BTreeMap::new();
            let mut most = [9, 9];
            for (key, there, group, created, weight, allowed) in steps {
                let before: BTreeMap<u8, bool> = members.keys().map(|key| (*key, quota.has(key))).collect();
                let new = there.then(|| member(group, created, weight));
                let mut told = quota.set(&key, new.clone());
                match new {
                    Some(new) => members.insert(key, new),
                    None => members.remove(&key),
                };
                if allowed > 8 {
                    most[usize::from(group)] = allowed;
                    told.extend(quota.allow(&group, allowed));
                }
                for (other, member) in &members {
                    let mut group: Vec<_> =
                        members.iter().filter(|(_, m)| m.group == member.group).map(|(k, m)| ((m.created, *k), m.weight)).collect();
                    group.sort();
                    let older = group.iter().take_while(|(rank, _)| *rank <= (member.created, *other));
                    let fits = older.map(|(_, weight)| weight).sum::<u64>() <= most[usize::from(member.group)];
                    prop_assert_eq!(quota.has(other), fits);
                    if *other != key {
                        let turns = told.iter().filter(|told| *told == other).count();
                        prop_assert_eq!(turns % 2 == 1, before[other] != fits);
                    }
                }
            }
        }
    }
}
