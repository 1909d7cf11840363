//! A map whose number of entries is bounded, and for each owner by itself, so that no owner makes
//! another's forgotten. Pure: time is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The age of the oldest entry of an owner from which another of the same owner takes its place: an
/// owner of many entries does not have them come and go all the time.
const TURN: Duration = Duration::from_secs(10);

/// An entry with the time at which it was seen last.
pub(crate) trait Dated {
    /// The time at which it was seen last.
    fn at(&self) -> SystemTime;

    /// The time since then.
    fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.at()).unwrap_or_default()
    }
}

/// Entries by owner and key: at most so many of an owner, and of all.
#[derive(Debug)]
pub(crate) struct ByOwner<K, V, const OF_OWNER: usize, const OF_ALL: usize> {
    /// None is empty.
    owners: BTreeMap<Arc<str>, BTreeMap<K, V>>,
    len: usize,
}

impl<K, V, const OF_OWNER: usize, const OF_ALL: usize> Default for ByOwner<K, V, OF_OWNER, OF_ALL> {
    fn default() -> Self {
        Self {
            owners: BTreeMap::new(),
            len: 0,
        }
    }
}

impl<K: Ord + Clone, V: Dated, const OF_OWNER: usize, const OF_ALL: usize>
    ByOwner<K, V, OF_OWNER, OF_ALL>
{
    /// Returns an entry.
    pub(crate) fn get(&self, owner: &str, key: &K) -> Option<&V> {
        self.owners.get(owner)?.get(key)
    }

    /// Returns an entry to change it.
    pub(crate) fn get_mut(&mut self, owner: &str, key: &K) -> Option<&mut V> {
        self.owners.get_mut(owner)?.get_mut(key)
    }

    /// Returns all entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.owners.values().flatten()
    }

    /// True if there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Adds an entry that is not there, if there is room.
    pub(crate) fn insert(&mut self, owner: &str, key: K, value: V) {
        if self.make_room(owner, value.at()) {
            self.len += 1;
            let entries = self.owners.entry(owner.into()).or_default();
            entries.insert(key, value);
        }
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, owner: &str, key: &K) {
        let Some(entries) = self.owners.get_mut(owner) else {
            return;
        };
        self.len -= usize::from(entries.remove(key).is_some());
        if entries.is_empty() {
            self.owners.remove(owner);
        }
    }

    /// Keeps the entries for which a function is true.
    pub(crate) fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.owners.retain(|_, entries| {
            entries.retain(|_, value| keep(value));
            !entries.is_empty()
        });
        self.len = self.owners.values().map(BTreeMap::len).sum();
    }

    /// Makes room for an entry of an owner: its oldest goes first, or the oldest of the owner with
    /// the most. Returns whether there is room.
    fn make_room(&mut self, owner: &str, now: SystemTime) -> bool {
        let own = self.owners.get(owner).map_or(0, BTreeMap::len);
        if own < OF_OWNER && self.len < OF_ALL {
            return true;
        }
        let fullest = self.owners.iter().max_by_key(|(_, entries)| entries.len());
        let loser: Arc<str> = match fullest {
            Some((fullest, entries)) if own < OF_OWNER && entries.len() > own => fullest.clone(),
            _ => owner.into(),
        };
        let entries = self.owners.get(&loser).into_iter().flatten();
        let oldest = entries.min_by_key(|(_, value)| value.at());
        match oldest {
            Some((key, value)) if *loser != *owner || value.age(now) >= TURN => {
                let key = key.clone();
                self.remove(&loser, &key);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct At(SystemTime);

    impl Dated for At {
        fn at(&self) -> SystemTime {
            self.0
        }
    }

    fn at(seconds: u64) -> At {
        At(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }

    type Few = ByOwner<u16, At, 4, 8>;

    #[test]
    fn an_owner_forgets_its_own_entries_alone() {
        let mut all = Few::default();
        all.insert("quiet", 1, at(0));
        for key in 0..8 {
            all.insert("loud", key, at(10 * u64::from(key)));
        }
        assert!(all.get("quiet", &1).is_some());
        assert!(all.get("loud", &0).is_none(), "its oldest");
        assert_eq!(all.len, 5);
    }

    #[test]
    fn entries_do_not_come_and_go_all_the_time() {
        let mut all = Few::default();
        for key in 0..8 {
            all.insert("loud", key, at(0));
        }
        assert!(all.get("loud", &0).is_some(), "the first");
        assert!(all.get("loud", &7).is_none(), "the last");
        all.insert("loud", 9, at(10));
        assert!(all.get("loud", &9).is_some(), "in place of an older one");
    }

    #[test]
    fn many_owners_have_no_more_than_all_may() {
        let mut all = Few::default();
        for owner in 0..16 {
            all.insert(&owner.to_string(), 0, at(owner));
        }
        assert_eq!(all.len, 8);
        assert_eq!(all.iter().count(), all.len, "the count");
        all.retain(|_| false);
        assert!(all.is_empty());
    }
}
