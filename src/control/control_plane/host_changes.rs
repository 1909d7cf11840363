//! The hostnames whose rows may have changed lately, for pages that follow them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::host_query::HostRevisions;
use gatewright_core::inputs::ObjectKey;
use gatewright_core::model::{Condition, Hostname};
use gatewright_core::translate::ObjectStatus;

/// The maximum number of hostnames that are remembered, over all steps.
const REMEMBERED: usize = 4096;

/// The last steps that changed hostnames.
#[derive(Debug, Default)]
pub(super) struct HostChanges {
    revisions: watch::Sender<HostRevisions>,
    /// The hostnames of the last steps by their revisions, the newest last.
    steps: VecDeque<(u64, BTreeSet<Hostname>)>,
    hostnames: usize,
    /// Hashes of the conditions of Gateways and ListenerSets that are not as desired: rows of all
    /// their hostnames have them.
    faults: BTreeMap<ObjectKey, u64>,
}

impl HostChanges {
    /// Takes in the status of a Gateway or ListenerSet. Returns whether it has other faults now.
    pub(super) fn note_status(&mut self, key: &ObjectKey, status: Option<&ObjectStatus>) -> bool {
        let conditions = status.iter().flat_map(|of| of.conditions_of_listeners());
        let faults: Vec<(Option<&str>, &Condition)> = conditions
            .filter(|(_, condition)| !condition.is_healthy())
            .collect();
        if faults.is_empty() {
            return self.faults.remove(key).is_some();
        }
        let mut hasher = DefaultHasher::new();
        faults.hash(&mut hasher);
        let hash = hasher.finish();
        self.faults.insert(key.clone(), hash) != Some(hash)
    }

    /// Notes the hostnames that a step changed. Revisions are times, so that those of an earlier
    /// run of the program are before all of this one.
    pub(super) fn note(&mut self, hostnames: BTreeSet<Hostname>, now: SystemTime) {
        if hostnames.is_empty() {
            return;
        }
        if self.revision() == 0 {
            self.note_all(now);
            return;
        }
        let newest = self.next(now);
        let mut forgotten = self.revisions.borrow().forgotten;
        self.hostnames += hostnames.len();
        self.steps.push_back((newest, hostnames));
        while self.hostnames > REMEMBERED || self.steps.len() > REMEMBERED {
            let Some((revision, oldest)) = self.steps.pop_front() else {
                break;
            };
            forgotten = revision;
            self.hostnames -= oldest.len();
        }
        self.revisions
            .send_replace(HostRevisions { newest, forgotten });
    }

    /// Notes that every hostname may have changed.
    pub(super) fn note_all(&mut self, now: SystemTime) {
        self.steps.clear();
        self.hostnames = 0;
        let newest = self.next(now);
        self.revisions.send_replace(HostRevisions {
            newest,
            forgotten: newest,
        });
    }

    fn next(&self, now: SystemTime) -> u64 {
        let millis = now
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let millis = u64::try_from(millis).unwrap_or_default();
        millis.max(self.revision() + 1)
    }

    /// Returns the revision of the last step.
    pub(super) fn revision(&self) -> u64 {
        self.revisions.borrow().newest
    }

    /// Returns the revisions, as they change.
    pub(super) fn watch(&self) -> watch::Receiver<HostRevisions> {
        self.revisions.subscribe()
    }

    /// Returns the hostnames that changed after a revision; `None` if these are not known, and any
    /// may have.
    pub(super) fn since(&self, revision: u64) -> Option<BTreeSet<Hostname>> {
        if self.revisions.borrow().are_all_changed_after(revision) {
            return None;
        }
        let steps = self.steps.iter().filter(|(of, _)| *of > revision);
        Some(steps.flat_map(|(_, names)| names).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn names(names: &[&str]) -> BTreeSet<Hostname> {
        let parsed = names.iter().map(|name| Hostname::parse(name));
        parsed.map(|name| name.expect("a hostname")).collect()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_page_learns_what_changed_since_it_asked() {
        let mut changes = HostChanges::default();
        changes.note(names(&["start.example.org"]), at(10));
        let first = changes.revision();
        changes.note(names(&["a.example.org"]), at(10));
        let second = changes.revision();
        changes.note(names(&[]), at(11));
        assert_eq!(changes.revision(), second, "a step of none is none");
        changes.note(names(&["b.example.org"]), at(10));
        let third = changes.revision();
        assert!(first < second && second < third, "steps of a moment differ");
        assert_eq!(changes.since(third), Some(names(&[])), "nothing since");
        assert_eq!(changes.since(second), Some(names(&["b.example.org"])));
        let both = names(&["a.example.org", "b.example.org"]);
        assert_eq!(changes.since(first), Some(both));
    }

    #[test]
    fn what_is_not_known_may_be_any_hostname() {
        let mut changes = HostChanges::default();
        changes.note(names(&["a.example.org"]), at(10));
        let before = changes.revision();
        changes.note_all(at(11));
        let after = changes.revision();
        assert_eq!(changes.since(before), None, "all changed");
        assert_eq!(changes.since(after), Some(names(&[])));
        for host in 0..2 * REMEMBERED {
            changes.note(names(&[&format!("h{host}.example.org")]), at(12));
        }
        assert_eq!(changes.steps.len(), REMEMBERED, "it is bounded");
        assert_eq!(changes.since(after), None, "it was pushed out");
        let mut next = HostChanges::default();
        assert_eq!(next.since(after), None, "of a run before the first step");
        next.note(names(&["a.example.org"]), at(60));
        assert_eq!(next.since(after), None, "of the run before");
    }
}
