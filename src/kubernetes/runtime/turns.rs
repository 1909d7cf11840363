//! What watches tell waits for its turn: see [`gatewright_core::turns`].

use std::time::Instant;

use tokio::time::sleep_until;

use super::KubernetesRuntime;
use crate::lease::Term;
use crate::watch::sync::WatchSync;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::translate::Change;

/// What is done once everything has been applied that was told before.
pub(super) enum Afterwards {
    /// All of a kind is known.
    Whole(Kind),
    /// Nobody refers to a Secret or ConfigMap any more, or it is gone.
    Forget(ObjectKey),
}

impl KubernetesRuntime {
    /// Has changes wait for their turn, or for the complete view.
    pub(super) fn queue(&mut self, changes: Vec<Change>, term: Term) {
        if !self.serving {
            return self.apply(changes, term);
        }
        self.turns.push(changes);
        // What tenancy was told may be all there is.
        if self.turns.is_empty() && !self.known.is_empty() {
            self.apply(Vec::new(), term);
        }
    }

    /// Whether changes wait for their turn.
    pub fn is_behind(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Applies the next batch of what waits.
    pub(super) fn take_turn(&mut self, term: Term) {
        let batch = self.turns.take(self.live.reached(), Instant::now());
        if !batch.changes.is_empty() {
            let before = self.live.publication();
            self.apply(batch.changes, term);
            if self.live.publication() != before {
                self.turns.published(batch.namespaces, self.live.publication(), Instant::now());
            }
            self.catch_up(term);
        }
        while let Some((mark, _)) = self.afterwards.front()
            && self.turns.has_taken(*mark)
        {
            let (_, afterwards) = self.afterwards.pop_front().expect("there is one");
            self.take_afterwards(afterwards, term);
        }
        self.begin(term);
    }

    /// Does this once everything has been applied that waits now.
    pub(super) fn in_turn(&mut self, afterwards: Afterwards, term: Term) {
        if self.afterwards.is_empty() && self.turns.is_empty() {
            return self.take_afterwards(afterwards, term);
        }
        self.afterwards.push_back((self.turns.mark(), afterwards));
    }

    fn take_afterwards(&mut self, afterwards: Afterwards, term: Term) {
        match afterwards {
            Afterwards::Whole(kind) => {
                let line = self.view.complete(kind);
                self.take_state(kind, line, term);
            }
            Afterwards::Forget(key) => self.apply(vec![Change::delete(key)], term),
        }
    }

    /// The view, after a kind that was about to count as whole does no longer.
    pub(super) fn view_not_whole(&mut self, kind: Kind) -> &mut WatchSync {
        self.afterwards.retain(|(_, waits)| !matches!(waits, Afterwards::Whole(whole) if *whole == kind));
        &mut self.view
    }

    /// Whether a Secret or ConfigMap is still to be forgotten; it is not any more.
    pub(super) fn remembers(&mut self, key: &ObjectKey) -> bool {
        let before = self.afterwards.len();
        self.afterwards.retain(|(_, waits)| !matches!(waits, Afterwards::Forget(forgotten) if forgotten == key));
        self.afterwards.len() < before
    }

    /// When a batch of what waits is due.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.turns.is_empty() { None } else { self.turns.due(self.live.reached(), Instant::now()) }
    }

    /// Waits until then.
    pub(super) async fn until(due: Option<Instant>) {
        match due {
            Some(due) => sleep_until(due.into()).await,
            None => std::future::pending().await,
        }
    }
}
