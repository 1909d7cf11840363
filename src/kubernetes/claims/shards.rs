//! The ConfigMaps of the record as last seen, and the place of an entry among them. Pure.
//!
//! An entry belongs to the ConfigMap with the first byte of its hash in the name. Tenants choose the hashed texts, so a
//! namespace can aim at one ConfigMap: one that has become large is *split*, by an annotation. From then on it takes no
//! new entries, and the ConfigMaps with one more byte of the hash do. The write that splits and the writes of entries
//! are conditional on the same resource version, so two replicas never put an entry into two places.

use std::collections::BTreeMap;

use super::entry::{Entry, Owner};

/// The size of the data, in bytes, from which on a ConfigMap is split. A ConfigMap has 1 MiB at most, and its keys are a
/// second time in `managedFields`.
const SPLIT_AT: usize = 256 << 10;

/// A ConfigMap of the record, as last seen.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Its resource version; empty where it was deleted.
    pub(super) version: String,
    /// Its entries; also of one that was deleted, until it is written again.
    pub(super) records: BTreeMap<Entry, Owner>,
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
        let size = |(entry, owner): (&Entry, &Owner)| entry.key().len() + entry.value(owner).len();
        self.records.iter().map(size).sum::<usize>() >= SPLIT_AT
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
        self.0.iter().filter(|(_, shard)| shard.is_lost()).map(|(name, _)| name)
    }

    /// Returns the ConfigMap that has an entry, or the one into which a new entry is written.
    pub(super) fn place(&self, entry: &Entry) -> String {
        let has = |name: &String| self.0.get(name).is_some_and(|shard| shard.records.contains_key(entry));
        let is_open = |name: &String| self.0.get(name).is_none_or(|shard| !shard.is_split);
        let found = entry.path().find(has).or_else(|| entry.path().find(is_open));
        found.or_else(|| entry.path().last()).expect("a path has several names")
    }

    /// Returns the recorded owner of an entry.
    pub(super) fn owner(&self, entry: &Entry) -> Option<&Owner> {
        entry.path().find_map(|name| self.0.get(&name)?.records.get(entry))
    }
}
