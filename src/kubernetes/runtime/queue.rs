//! Queues changes of the watches, with fair queueing: see [`gatewright_core::fair_queue`].

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use tokio::time::sleep_until;

use super::KubernetesRuntime;
use crate::lease::Term;
use crate::watch::sync::WatchSync;
use gatewright_core::fair_queue::FairQueue;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::tenancy;
use gatewright_core::translate::Change;

/// The changes that are not applied yet.
#[derive(Default)]
pub(super) struct QueuedChanges {
    /// The changes that wait for the first complete view.
    pub(super) early: Vec<Change>,
    /// The changes that wait for their turn.
    pub(super) queue: FairQueue,
    /// The actions that wait until earlier changes are applied.
    afterwards: VecDeque<(u64, Afterwards)>,
    /// The bodies that were to be dropped and are being fetched again: the one before stays in use
    /// until then.
    refetched: BTreeSet<ObjectKey>,
    /// The changes for tenancy: existing derived objects, facts and records.
    pub(super) known: Vec<tenancy::Change>,
}

impl QueuedChanges {
    /// Removes the pending drop of a body of a Secret or ConfigMap. Returns whether there was one.
    pub(super) fn remembers(&mut self, key: &ObjectKey) -> bool {
        let before = self.afterwards.len();
        self.afterwards.retain(
            |(_, waits)| !matches!(waits, Afterwards::Forget(forgotten) if forgotten == key),
        );
        self.refetched.remove(key) || self.afterwards.len() < before
    }
}

/// An action that is done once all earlier changes are applied.
pub(super) enum Afterwards {
    /// Marks the view of a kind as complete.
    Complete(Kind),
    /// Drops the body of a Secret or ConfigMap that was deleted, or that no object refers to any
    /// more.
    Forget(ObjectKey),
}

impl KubernetesRuntime {
    /// Queues changes for their turn, or for the complete view.
    pub(super) fn queue(&mut self, changes: Vec<Change>, term: Term) {
        if !self.serving {
            return self.apply(changes, term);
        }
        self.queued.queue.push(changes);
        // The only changes may be those for tenancy.
        if self.queued.queue.is_empty() && !self.queued.known.is_empty() {
            self.apply(Vec::new(), term);
        }
    }

    /// Takes in addresses of names, in the turn of each namespace.
    pub fn take_names(&mut self, changes: Vec<Change>, term: Term) {
        self.queue(changes, term);
    }

    /// Returns whether changes wait for their turn.
    pub fn is_behind(&self) -> bool {
        !self.queued.queue.is_empty()
    }

    /// Applies the next batch of queued changes.
    pub(super) fn take_turn(&mut self, term: Term) {
        let batch = self.queued.queue.take(self.live.reached(), Instant::now());
        if !batch.changes.is_empty() {
            let before = self.live.publication();
            self.apply(batch.changes, term);
            if self.live.publication() != before {
                self.queued.queue.published(
                    batch.namespaces,
                    self.live.publication(),
                    Instant::now(),
                );
            }
            self.catch_up(term);
        }
        while let Some((mark, _)) = self.queued.afterwards.front()
            && self.queued.queue.has_taken(*mark)
        {
            let (_, afterwards) = self.queued.afterwards.pop_front().expect("there is one");
            self.take_afterwards(afterwards, term);
        }
        self.begin(term);
    }

    /// Drops bodies once all changes that are queued now are applied, except those that are wanted
    /// again.
    pub(super) fn drop_in_turn(&mut self, bodies: Vec<ObjectKey>, term: Term) {
        for key in bodies {
            if self.references.awaits(&key) {
                self.queued.refetched.insert(key);
            } else {
                self.queued.refetched.remove(&key);
                self.in_turn(Afterwards::Forget(key), term);
            }
        }
    }

    /// Does this once all changes that are queued now are applied.
    pub(super) fn in_turn(&mut self, afterwards: Afterwards, term: Term) {
        if self.queued.afterwards.is_empty() && self.queued.queue.is_empty() {
            return self.take_afterwards(afterwards, term);
        }
        self.queued
            .afterwards
            .push_back((self.queued.queue.mark(), afterwards));
    }

    fn take_afterwards(&mut self, afterwards: Afterwards, term: Term) {
        match afterwards {
            Afterwards::Complete(kind) => {
                let line = self.view.complete(kind);
                self.take_state(kind, line, term);
            }
            Afterwards::Forget(key) => self.apply(vec![Change::delete(key)], term),
        }
    }

    /// Returns the view, after removing the pending mark of a kind as complete.
    pub(super) fn view_not_complete(&mut self, kind: Kind) -> &mut WatchSync {
        self.queued.afterwards.retain(
            |(_, waits)| !matches!(waits, Afterwards::Complete(complete) if *complete == kind),
        );
        &mut self.view
    }

    /// Returns when the next batch is due.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.queued.queue.is_empty() {
            None
        } else {
            self.queued.queue.due(self.live.reached(), Instant::now())
        }
    }

    /// Waits until that time.
    pub(super) async fn until(due: Option<Instant>) {
        match due {
            // A timer is late by a millisecond or two, also one that is due already.
            Some(due) if due <= Instant::now() => {}
            Some(due) => sleep_until(due.into()).await,
            None => std::future::pending().await,
        }
    }
}
