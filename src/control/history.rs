//! What changed, when, by whom, and how long Envoys took: the last changes, bounded in memory.
//! Pure: whoever stores changes gives them back at the next start ([`History::restored`]).
//!
//! Each namespace has a share for each kind of change: no share grows beyond an eighth of the
//! whole, and the newest changes of a share stay while another has more. So a tenant's changes
//! never push out those of others entirely, and endpoints that come and go do not push out routes.

mod change_kind;
mod entry;
mod query;
mod seen;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

pub use gatewright_core::inputs::ChangeKind;

pub(crate) use self::change_kind::kind_of_change;
pub use self::entry::{Author, ChangedObject, EnvoyTime, HistoryEntry, Outcome};
pub(crate) use self::entry::{NAMED, milliseconds};
pub use self::query::{HistoryAnswer, HistoryQuery};

/// The maximum number of changes.
const ENTRIES: usize = 8192;
/// The maximum size of all changes, in bytes.
const BYTES: usize = 8 << 20;
/// The number of changes of a share that stay while another share has more.
const KEPT: usize = 2;

/// The changes of a namespace of one kind.
type ShareKey = (Arc<str>, ChangeKind);

/// Identifies a change that is remembered, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryId {
    share: ShareKey,
    number: u64,
}

/// The last changes.
#[derive(Debug)]
pub struct History {
    shares: BTreeMap<ShareKey, Share>,
    /// The number of the oldest change of each share with more than [`KEPT`], and its share.
    long: BTreeSet<(u64, ShareKey)>,
    /// The same of the other shares.
    short: BTreeSet<(u64, ShareKey)>,
    limit: Limit,
    entries: usize,
    bytes: usize,
    next: u64,
    /// The time of the newest change that was pushed out.
    forgotten: Option<Timestamp>,
}

/// The changes of one share, the oldest first.
#[derive(Debug, Default)]
struct Share {
    entries: VecDeque<HistoryEntry>,
    bytes: usize,
}

/// The maximum of a history.
#[derive(Clone, Copy, Debug)]
struct Limit {
    entries: usize,
    bytes: usize,
}

impl Default for History {
    fn default() -> Self {
        Self::within(Limit {
            entries: ENTRIES,
            bytes: BYTES,
        })
    }
}

impl History {
    fn within(limit: Limit) -> Self {
        Self {
            shares: BTreeMap::new(),
            long: BTreeSet::new(),
            short: BTreeSet::new(),
            limit,
            entries: 0,
            bytes: 0,
            next: 0,
            forgotten: None,
        }
    }

    /// Returns the history of changes that were stored by an earlier run. Of several entries with
    /// one number the last counts. What waited for Envoys then is not known any more.
    pub fn restored(
        stored: impl IntoIterator<Item = HistoryEntry>,
        forgotten: Option<Timestamp>,
    ) -> Self {
        let stored = stored.into_iter().map(|entry| (entry.number, entry));
        let mut history = Self::default();
        for mut entry in stored.collect::<BTreeMap<_, _>>().into_values() {
            if entry.outcome == Outcome::Waiting {
                entry.outcome = Outcome::Unknown;
            }
            history.next = entry.number;
            history.push(entry);
        }
        history.forgotten = history.forgotten.max(forgotten);
        history
    }

    /// Adds a change. Its number is set.
    pub(crate) fn push(&mut self, mut entry: HistoryEntry) -> EntryId {
        let share = (entry.namespace.clone(), entry.kind);
        entry.number = self.next;
        self.next = self.next.saturating_add(1);
        let id = EntryId {
            share: share.clone(),
            number: entry.number,
        };
        self.unmark(&share);
        let bytes = entry.bytes();
        let of = self.shares.entry(share.clone()).or_default();
        of.entries.push_back(entry);
        of.bytes += bytes;
        self.entries += 1;
        self.bytes += bytes;
        self.mark(&share);
        while self.is_over_its_share(&share) {
            self.forget_oldest(&share);
        }
        while self.entries > self.limit.entries || self.bytes > self.limit.bytes {
            let Some((_, oldest)) = self.long.first().or_else(|| self.short.first()).cloned()
            else {
                break;
            };
            self.forget_oldest(&oldest);
        }
        id
    }

    /// Changes an entry, if it is still remembered.
    pub(crate) fn update(&mut self, id: &EntryId, change: impl FnOnce(&mut HistoryEntry)) {
        let Some(share) = self.shares.get_mut(&id.share) else {
            return;
        };
        let found = share
            .entries
            .binary_search_by_key(&id.number, |entry| entry.number);
        if let Some(entry) = found.ok().and_then(|at| share.entries.get_mut(at)) {
            let before = entry.bytes();
            change(entry);
            let after = entry.bytes();
            share.bytes = share.bytes + after - before;
            self.bytes = self.bytes + after - before;
        }
    }

    /// Returns a change, if it is still remembered.
    pub(crate) fn get(&self, id: &EntryId) -> Option<&HistoryEntry> {
        let entries = &self.shares.get(&id.share)?.entries;
        let found = entries.binary_search_by_key(&id.number, |entry| entry.number);
        entries.get(found.ok()?)
    }

    /// Returns the time of the newest change that was pushed out by others.
    pub fn forgotten(&self) -> Option<Timestamp> {
        self.forgotten
    }

    /// Returns all changes, the oldest first.
    pub fn all(&self) -> Vec<&HistoryEntry> {
        let shares = self.shares.values();
        let mut all: Vec<&HistoryEntry> = shares.flat_map(|share| &share.entries).collect();
        all.sort_by_key(|entry| entry.number);
        all
    }

    /// Returns whether a share has more than an eighth, and more than one change.
    fn is_over_its_share(&self, share: &ShareKey) -> bool {
        self.shares.get(share).is_some_and(|share| {
            share.entries.len() > 1
                && (share.bytes > self.limit.bytes / 8
                    || share.entries.len() > self.limit.entries / 8)
        })
    }

    fn forget_oldest(&mut self, share: &ShareKey) {
        self.unmark(share);
        if let Some(of) = self.shares.get_mut(share) {
            if let Some(entry) = of.entries.pop_front() {
                of.bytes -= entry.bytes();
                self.bytes -= entry.bytes();
                self.entries -= 1;
                self.forgotten = self.forgotten.max(Some(entry.at));
            }
            if of.entries.is_empty() {
                self.shares.remove(share);
            }
        }
        self.mark(share);
    }

    /// Removes the entry of a share in the order of shares, before its oldest change differs.
    fn unmark(&mut self, share: &ShareKey) {
        if let Some(oldest) = self.oldest(share) {
            self.long.remove(&(oldest, share.clone()));
            self.short.remove(&(oldest, share.clone()));
        }
    }

    /// Adds the entry of a share to the order of shares.
    fn mark(&mut self, share: &ShareKey) {
        if let Some(oldest) = self.oldest(share) {
            let is_long = self
                .shares
                .get(share)
                .is_some_and(|share| share.entries.len() > KEPT);
            let of = if is_long {
                &mut self.long
            } else {
                &mut self.short
            };
            of.insert((oldest, share.clone()));
        }
    }

    fn oldest(&self, share: &ShareKey) -> Option<u64> {
        let front = self.shares.get(share)?.entries.front()?;
        Some(front.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(namespace: &str, kind: ChangeKind) -> HistoryEntry {
        HistoryEntry::new(namespace.into(), kind, Timestamp::UNIX_EPOCH)
    }

    fn count(history: &History, namespace: &str, kind: ChangeKind) -> usize {
        let share = history.shares.get(&(namespace.into(), kind));
        share.map_or(0, |share| share.entries.len())
    }

    fn small() -> History {
        History::within(Limit {
            entries: 80,
            bytes: 1 << 20,
        })
    }

    #[test]
    fn a_loud_namespace_pushes_out_its_own_changes() {
        let mut history = small();
        for quiet in ["a", "b"] {
            history.push(entry(quiet, ChangeKind::Route));
        }
        for _ in 0..10_000 {
            history.push(entry("loud", ChangeKind::Endpoints));
        }
        history.push(entry("loud", ChangeKind::Route));
        assert_eq!(count(&history, "a", ChangeKind::Route), 1, "a's stays");
        assert_eq!(count(&history, "b", ChangeKind::Route), 1, "b's stays");
        assert_eq!(
            count(&history, "loud", ChangeKind::Endpoints),
            10,
            "it has an eighth"
        );
        assert_eq!(
            count(&history, "loud", ChangeKind::Route),
            1,
            "a kind has a share of its own"
        );
        assert!(history.forgotten.is_some(), "it says that it is not whole");
    }

    #[test]
    fn many_loud_namespaces_leave_the_newest_of_each() {
        let mut history = small();
        history.push(entry("quiet", ChangeKind::Route));
        for round in 0..1_000 {
            let namespace = format!("n{}", round % 20);
            history.push(entry(&namespace, ChangeKind::Route));
        }
        assert_eq!(history.entries, 80, "the limit holds");
        assert_eq!(count(&history, "quiet", ChangeKind::Route), 1, "it stays");
        let least = (0..20).map(|at| count(&history, &format!("n{at}"), ChangeKind::Route));
        assert!(least.min() >= Some(KEPT), "each has its newest");
    }

    #[test]
    fn more_namespaces_than_fit_lose_the_oldest() {
        let mut history = small();
        let numbers = 0..200;
        let namespaces: Vec<String> = numbers.map(|at| format!("n{at}")).collect();
        for namespace in &namespaces {
            history.push(entry(namespace, ChangeKind::Route));
        }
        assert_eq!(history.entries, 80, "the limit holds");
        assert_eq!(
            count(&history, "n0", ChangeKind::Route),
            0,
            "the oldest is gone"
        );
        assert_eq!(
            count(&history, "n199", ChangeKind::Route),
            1,
            "the newest is there"
        );
        assert_eq!(
            history.long.len() + history.short.len(),
            history.shares.len(),
            "every share is in order"
        );
    }

    #[test]
    fn bytes_are_limited_too_and_counted_as_entries_grow() {
        let mut history = History::within(Limit {
            entries: 1_000,
            bytes: 16 << 10,
        });
        let mut ids = Vec::new();
        for at in 0..100 {
            let namespace = format!("n{}", at % 10);
            ids.push(history.push(entry(&namespace, ChangeKind::Route)));
        }
        for id in &ids {
            history.update(id, |entry| entry.hosts = vec!["x".repeat(200)]);
        }
        history.push(entry("last", ChangeKind::Route));
        assert!(history.bytes <= 16 << 10, "{} bytes", history.bytes);
        let counted: usize = history.all().iter().map(|entry| entry.bytes()).sum();
        assert_eq!(history.bytes, counted, "what is counted is there");
    }

    #[test]
    fn a_history_is_restored_with_its_numbers_and_its_last_word() {
        let mut before = small();
        let ids = ["a", "b"].map(|namespace| before.push(entry(namespace, ChangeKind::Route)));
        let mut stored: Vec<HistoryEntry> = before.all().into_iter().cloned().collect();
        before.update(&ids[0], |entry| entry.outcome = Outcome::Acknowledged);
        stored.extend(before.get(&ids[0]).cloned());
        let mut history = History::restored(stored, Some(Timestamp::UNIX_EPOCH));
        let outcomes: Vec<Outcome> = history.all().iter().map(|entry| entry.outcome).collect();
        assert_eq!(outcomes, [Outcome::Acknowledged, Outcome::Unknown]);
        assert_eq!(history.forgotten(), Some(Timestamp::UNIX_EPOCH));
        history.push(entry("c", ChangeKind::Route));
        let numbers: Vec<u64> = history.all().iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, [0, 1, 2], "numbers go on");
    }

    #[test]
    fn changes_are_in_the_order_in_which_they_came() {
        let mut history = small();
        for namespace in ["b", "a", "b"] {
            history.push(entry(namespace, ChangeKind::Route));
        }
        let order: Vec<&str> = history
            .all()
            .iter()
            .map(|entry| &*entry.namespace)
            .collect();
        assert_eq!(order, ["b", "a", "b"]);
    }
}
