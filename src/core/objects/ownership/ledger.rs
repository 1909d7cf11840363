//! The ledger of a stage: the records of ownership, the changes of them that the stage proposes,
//! and what limits them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ownable::Ownable;
use super::quota::{RecordClaim, RecordQuota};
use super::record::{OwnerRecord, Recording};
use super::reservations::Reservations;
use crate::model::Hostname;

/// Records, and proposed changes of them.
pub struct Ledger {
    recording: Recording,
    records: BTreeMap<Ownable, OwnerRecord>,
    /// Proposals, if another process writes the record.
    proposed: BTreeMap<Ownable, Option<OwnerRecord>>,
    /// Reservations for namespaces that released an item.
    reserved: Reservations<Ownable>,
    /// The hostnames that each namespace claims, of which it may own as many as fit its quota.
    quota: RecordQuota<Ownable>,
    /// The latest start of a record.
    latest: u64,
}

/// The record, and its proposals.
impl Ledger {
    /// The recorded owner of an item.
    pub fn owner(&self, what: &Ownable) -> Option<&OwnerRecord> {
        self.records.get(what)
    }

    /// All records.
    pub fn records(&self) -> &BTreeMap<Ownable, OwnerRecord> {
        &self.records
    }

    /// Records to write or to remove, for the keeper of the record.
    pub fn proposals(&self) -> impl Iterator<Item = (&Ownable, Option<&OwnerRecord>)> {
        self.proposed
            .iter()
            .map(|(what, owner)| (what, owner.as_ref()))
    }

    /// The proposed change of a record; `None` if the record is right.
    pub fn proposal(&self, what: &Ownable) -> Option<Option<&OwnerRecord>> {
        self.proposed.get(what).map(Option::as_ref)
    }

    /// The owner of an item, recorded or proposed.
    pub fn decided(&self, what: &Ownable) -> Option<&OwnerRecord> {
        self.proposal(what)
            .unwrap_or_else(|| self.records.get(what))
    }

    /// True if a namespace is the proposed owner of an item.
    pub fn is_about_to_own(&self, what: &Ownable, namespace: &str) -> bool {
        let proposed = self.proposal(what).flatten();
        proposed.is_some_and(|owner| *owner.namespace == *namespace)
    }

    /// The owned hostnames below a wildcard, or below the catch-all.
    pub fn owned_below<'a>(&'a self, wide: &'a Ownable) -> impl Iterator<Item = &'a Hostname> {
        let first = wide.with(Hostname::any()).into_iter();
        let records = first.flat_map(|first| self.records.range(first..));
        records
            .map(|(what, _)| what)
            .take_while(|what| what.is_beside(wide))
            .filter(|what| what.is_below(wide))
            .filter_map(Ownable::hostname)
    }

    /// The end of the next reservation, in seconds since the epoch: then there may be work without
    /// any other change than the time.
    pub fn next_expiry(&self) -> Option<u64> {
        self.reserved.next_expiry()
    }

    /// The items whose reservation has ended.
    pub fn expired(&self, now: u64) -> impl Iterator<Item = &Ownable> {
        self.reserved.expired(now)
    }

    /// The record of an item that its owner claims no more, as long as the item stays reserved.
    pub fn reservation(&self, what: &Ownable, now: u64) -> Option<OwnerRecord> {
        let held = self.records.get(what)?;
        let released = self.reserved.since(&held.namespace, held.released, now)?;
        Some(OwnerRecord {
            released: Some(released),
            ..held.clone()
        })
    }

    /// The bytes of the record that a namespace claims within its quota.
    pub fn used_by(&self, namespace: &Arc<str>) -> u64 {
        self.quota.used(namespace)
    }

    /// True if a namespace may own an item by its quota.
    pub fn is_within_quota(&self, what: &Ownable, namespace: &Arc<str>) -> bool {
        self.quota.has(what, namespace)
    }

    /// Why a namespace may not own an item that it claims, if that is its quota.
    pub fn beyond_quota(&self, what: &Ownable, namespace: &Arc<str>) -> Option<String> {
        (!self.quota.has(what, namespace)).then(|| self.quota.exceeded(namespace))
    }
}

/// Changes.
impl Ledger {
    /// An empty ledger: released items are reserved for `hold` seconds, and a namespace may have
    /// so many bytes of the record.
    pub fn new(recording: Recording, hold: u64, bytes: u64) -> Self {
        Self {
            recording,
            records: BTreeMap::new(),
            proposed: BTreeMap::new(),
            reserved: Reservations::new(hold),
            quota: RecordQuota::new(bytes),
            latest: 0,
        }
    }

    /// The writer of the record.
    pub fn recording(&self) -> Recording {
        self.recording
    }

    /// The start of a record that is made now, which is later than all others.
    pub fn next_start(&self, now_ms: u64) -> u64 {
        now_ms.max(self.latest.saturating_add(1))
    }

    /// Applies a change of the record. Returns the former owner.
    pub fn take(&mut self, what: &Ownable, owner: Option<OwnerRecord>) -> Option<OwnerRecord> {
        let before = match &owner {
            Some(owner) => self.records.insert(what.clone(), owner.clone()),
            None => self.records.remove(what),
        };
        if let Some(before) = &before {
            let is_lost = owner
                .as_ref()
                .is_none_or(|owner| owner.namespace != before.namespace);
            if is_lost {
                self.quota.set_since(what, &before.namespace, None);
            }
            if let Some(released) = before.released {
                self.reserved.remove(what, &before.namespace, released);
            }
        }
        if let Some(owner) = owner {
            self.latest = self.latest.max(owner.since);
            self.quota
                .set_since(what, &owner.namespace, Some(owner.since));
            if let Some(released) = owner.released {
                self.reserved.add(what, &owner.namespace, released);
            }
        }
        before
    }

    /// Records the owner of an item, or proposes it; a new owner has it from `start` on. Returns
    /// the change for the writer of the record, if any.
    pub fn record(
        &mut self,
        what: &Ownable,
        owner: Option<OwnerRecord>,
        start: u64,
    ) -> Option<Option<OwnerRecord>> {
        let held = self.records.get(what);
        let is_same = is_same_owner(held, owner.as_ref());
        if is_same && released(held) == released(owner.as_ref()) {
            self.proposed.remove(what);
            return None;
        }
        let since = held.filter(|_| is_same).map_or(start, |held| held.since);
        let owner = owner.map(|owner| OwnerRecord { since, ..owner });
        match self.recording {
            Recording::ThisProcess => {
                self.take(what, owner.clone());
            }
            Recording::OtherProcess => {
                let there = self.proposed.get(what).map(Option::as_ref);
                let is_known = there.is_some_and(|there| {
                    is_same_owner(there, owner.as_ref())
                        && released(there).is_some() == released(owner.as_ref()).is_some()
                });
                if is_known {
                    return None;
                }
                self.proposed.insert(what.clone(), owner.clone());
            }
        }
        Some(owner)
    }

    /// Counts an item for a namespace with the creation time of the first object that claims it;
    /// `None` if the namespace claims it no more.
    pub fn count(&mut self, what: &Ownable, namespace: &Arc<str>, created: Option<i64>) {
        let bytes = what.record_bytes(namespace);
        if bytes == 0 {
            return;
        }
        let own = self.records.get(what);
        let own = own.filter(|owner| owner.namespace == *namespace);
        let claim = created.map(|created| RecordClaim {
            bytes,
            since: own.map(|owner| owner.since),
            created,
        });
        self.quota.set(what, namespace, claim);
    }

    /// Sets how many bytes of the record a namespace may have.
    pub fn allow(&mut self, namespace: &Arc<str>, bytes: u64) {
        self.quota.allow(namespace, bytes);
    }

    /// The items for which a quota decides otherwise than when this was last asked.
    pub fn take_turned(&mut self) -> BTreeSet<Ownable> {
        self.quota.take_turned()
    }
}

/// True if an item has the same owner, with the same protocol.
pub fn is_same_owner(a: Option<&OwnerRecord>, b: Option<&OwnerRecord>) -> bool {
    a.map(|owner| (&owner.namespace, owner.protocol))
        == b.map(|owner| (&owner.namespace, owner.protocol))
}

fn released(owner: Option<&OwnerRecord>) -> Option<u64> {
    owner.and_then(|owner| owner.released)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str) -> Ownable {
        Ownable::Tenant(Hostname::parse(name).expect("a hostname"))
    }

    fn owner(namespace: &str) -> Option<OwnerRecord> {
        Some(OwnerRecord::new(namespace.into()))
    }

    /// Records the proposals, as the keeper of the record does.
    fn keep(ledger: &mut Ledger) {
        for (what, owner) in ledger.proposed.clone() {
            ledger.take(&what, owner);
        }
    }

    #[test]
    fn a_proposal_holds_once_it_is_recorded_and_is_told_once_whatever_its_time() {
        let mut ledger = Ledger::new(Recording::OtherProcess, 100, u64::MAX);
        let what = item("a.org");
        let told = ledger.record(&what, owner("a"), 5);
        let told = told.flatten().expect("an owner");
        assert_eq!(&*told.namespace, "a", "the first claimant");
        assert_eq!(told.since, 5, "it has the item from now on");
        assert_eq!(ledger.record(&what, owner("a"), 9), None, "it is known");
        assert_eq!(ledger.owner(&what), None, "nobody owns it yet");
        assert!(ledger.is_about_to_own(&what, "a"));
        keep(&mut ledger);
        assert_eq!(ledger.owner(&what), Some(&told));
        assert_eq!(ledger.record(&what, owner("a"), 9), None, "it is right");
        assert_eq!(ledger.proposal(&what), None, "nothing is proposed any more");
        let other = ledger.record(&what, owner("b"), ledger.next_start(3));
        let other = other.flatten().expect("another owner");
        assert_eq!(other.since, 6, "it is later, whatever the clock says");
        assert_eq!(ledger.decided(&what), Some(&other));
    }

    #[test]
    fn a_released_item_is_reserved_and_keeps_its_start() {
        for recording in [Recording::ThisProcess, Recording::OtherProcess] {
            let mut ledger = Ledger::new(recording, 100, u64::MAX);
            let what = item("a.org");
            ledger.record(&what, owner("a"), 5);
            keep(&mut ledger);
            let reserved = ledger.reservation(&what, 7);
            let reserved = reserved.expect("it may be reserved");
            assert_eq!(reserved.since, 5, "it keeps its start");
            assert_eq!(reserved.released, Some(7), "it is released now");
            ledger.record(&what, Some(reserved.clone()), 9);
            keep(&mut ledger);
            assert_eq!(ledger.owner(&what), Some(&reserved));
            assert_eq!(ledger.next_expiry(), Some(107));
            assert_eq!(ledger.reservation(&what, 107), None, "it has ended");
            assert!(ledger.expired(107).eq([&what]));
            ledger.record(&what, owner("a"), 9);
            keep(&mut ledger);
            let back = ledger.owner(&what).expect("it has its owner again");
            assert_eq!(back.since, 5, "it keeps its start");
            assert_eq!(back.released, None, "it is released no more");
            assert_eq!(ledger.next_expiry(), None, "nothing is reserved");
        }
    }

    #[test]
    fn what_is_recorded_comes_first_in_the_quota_until_it_is_released() {
        let (old, new, a) = (item("old.org"), item("new.org"), Arc::from("a"));
        let room = old.record_bytes("a");
        let mut ledger = Ledger::new(Recording::ThisProcess, 0, room);
        ledger.count(&new, &a, Some(9));
        ledger.record(&new, owner("a"), 5);
        ledger.count(&old, &a, Some(1));
        assert!(ledger.is_within_quota(&new, &a), "it is recorded");
        let text = ledger.beyond_quota(&old, &a);
        assert!(text.is_some_and(|text| text.contains("recordKib")));
        ledger.take_turned();
        ledger.record(&new, None, 6);
        assert!(ledger.is_within_quota(&old, &a), "it is older");
        assert_eq!(ledger.take_turned(), [old].into());
        assert_eq!(ledger.used_by(&a), room);
    }
}
