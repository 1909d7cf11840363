//! The ConfigMaps of the record as last seen, and the place of an entry among them. Pure.
//!
//! An entry belongs to the ConfigMap with the first byte of its hash in the name. Tenants choose
//! the hashed texts, so a namespace can aim at one ConfigMap: one that has become large is *split*,
//! by an annotation. From then on it takes no new entries, and the ConfigMaps with one more byte of
//! the hash do. The write that splits and the writes of entries are conditional on the same
//! resource version, so two replicas never put an entry into two places.

use std::collections::BTreeMap;

use super::entry;
use gatewright_core::ownership::{Ownable, OwnerRecord};

/// The size of the data, in bytes, from which on a ConfigMap is split. A ConfigMap has 1 MiB at
/// most, and its keys are a second time in `managedFields`.
const SPLIT_AT: usize = 256 << 10;

/// A ConfigMap of the record, as last seen.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Its resource version; empty where it was deleted.
    pub(super) version: String,
    /// Its entries; also of one that was deleted, until it is written again.
    pub(super) records: BTreeMap<Ownable, OwnerRecord>,
    /// Whether new entries belong to the ConfigMaps below it.
    pub(super) is_split: bool,
}

impl Shard {
    /// Returns whether the ConfigMap exists.
    pub(super) fn exists(&self) -> bool {
        !self.version.is_empty()
    }

    /// Returns whether a ConfigMap with entries was deleted.
    pub(super) fn is_lost(&self) -> bool {
        !self.exists() && !self.records.is_empty()
    }

    /// Returns whether the ConfigMap is as large as it may become.
    pub(super) fn is_full(&self) -> bool {
        self.records
            .iter()
            .map(|(what, owner)| entry::key(what).len() + what.line(Some(owner)).len())
            .sum::<usize>()
            >= SPLIT_AT
    }
}

/// The ConfigMaps of the record by name.
#[derive(Debug, Default)]
pub(super) struct Shards(BTreeMap<String, Shard>);

impl Shards {
    pub(super) fn get(&self, name: &str) -> Option<&Shard> {
        self.0.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Shard> {
        self.0.get_mut(name)
    }

    pub(super) fn entry(&mut self, name: &str) -> &mut Shard {
        self.0.entry(name.to_owned()).or_default()
    }

    /// Returns the names of the ConfigMaps with entries that were deleted.
    pub(super) fn lost(&self) -> impl Iterator<Item = &String> {
        self.0
            .iter()
            .filter(|(_, shard)| shard.is_lost())
            .map(|(name, _)| name)
    }

    /// Returns the ConfigMap that has an entry, or the one into which a new entry is written.
    pub(super) fn place(&self, what: &Ownable) -> String {
        let found = entry::path(what)
            .find(|name| {
                self.0
                    .get(name)
                    .is_some_and(|shard| shard.records.contains_key(what))
            })
            .or_else(|| {
                entry::path(what).find(|name| self.0.get(name).is_none_or(|shard| !shard.is_split))
            });
        found
            .or_else(|| entry::path(what).last())
            .expect("a path has several names")
    }

    /// Returns whether the ConfigMap exists into which an entry was to be written first of all.
    pub(super) fn has_begun(&self, what: &Ownable) -> bool {
        let first = entry::path(what).next();
        first.is_some_and(|name| self.0.get(&name).is_some_and(Shard::exists))
    }

    /// Returns the recorded owner of an entry.
    pub(super) fn owner(&self, what: &Ownable) -> Option<&OwnerRecord> {
        entry::path(what).find_map(|name| self.0.get(&name)?.records.get(what))
    }
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::Hostname;

    use super::*;

    fn named(name: &str) -> Ownable {
        Ownable::Hostname(Hostname::parse(name).expect("a hostname"))
    }

    fn owner() -> OwnerRecord {
        OwnerRecord {
            namespace: "alice".into(),
            since: 1,
            protocol: None,
            released: None,
        }
    }

    #[test]
    fn an_entry_stays_where_it_is_and_new_ones_go_below_a_split_config_map() {
        let mut shards = Shards::default();
        let old = named("old.example");
        let new = named("new.example");
        let first = entry::path(&old).next().expect("a name");
        let below = entry::path(&old).nth(1).expect("a name");
        assert_eq!(shards.place(&old), first, "nothing is there yet");
        let shard = shards.entry(&first);
        shard.version = "1".to_owned();
        shard.is_split = true;
        assert_eq!(
            shards.place(&old),
            below,
            "a new entry of a split ConfigMap"
        );
        shards.entry(&first).records.insert(old.clone(), owner());
        assert_eq!(shards.place(&old), first, "an entry that was there before");
        assert_eq!(
            shards.place(&new),
            entry::path(&new).next().expect("a name"),
            "another ConfigMap is not split"
        );
        assert_eq!(shards.owner(&old), Some(&owner()));
    }

    #[test]
    fn a_config_map_is_full_long_before_the_api_server_refuses_it() {
        let mut shard = Shard::default();
        let long = "x".repeat(60);
        for n in 0.. {
            if shard.is_full() {
                break;
            }
            shard.records.insert(
                named(&format!("h{n}.{long}.{long}.{long}.example")),
                owner(),
            );
        }
        let size: usize = shard
            .records
            .iter()
            .map(|(what, owner)| entry::key(what).len() + what.line(Some(owner)).len())
            .sum();
        assert!((SPLIT_AT..SPLIT_AT + 1000).contains(&size), "{size}");
    }
}
