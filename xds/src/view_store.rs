//! The state of one view that streams share: its tables, and the acknowledgements of its clients.

use std::sync::{Arc, RwLock};

use tokio::sync::{Notify, watch};

use crate::Resource;
use crate::ack_tracker::AckTracker;
use crate::suspects::Suspects;
use crate::tables::Tables;
use crate::view::View;

/// A view with its clients: streams wait for `published`, the owner watches the tracker.
pub(crate) struct ViewStore {
    pub(crate) view: View,
    pub(crate) tables: RwLock<Tables>,
    pub(crate) published: Arc<Notify>,
    pub(crate) tracker: AckTracker,
    /// Number of requested on-demand secrets that did not exist.
    unknown: watch::Sender<u64>,
    /// Changes with `unknown` of any view; shared by all views.
    any_unknown: Arc<watch::Sender<u64>>,
    /// The suspects of the tables, for the owner to persist.
    suspects: watch::Sender<Arc<Suspects>>,
}

/// Receivers of the count of unknown secrets are notified once in so many.
const UNKNOWN_PER_NOTIFICATION: u64 = 128;

impl ViewStore {
    pub(crate) fn new(
        view: View,
        any_unknown: Arc<watch::Sender<u64>>,
        tracker: AckTracker,
    ) -> ViewStore {
        ViewStore {
            view,
            tables: RwLock::default(),
            published: Arc::default(),
            tracker,
            unknown: watch::Sender::new(0),
            any_unknown,
            suspects: watch::Sender::default(),
        }
    }

    pub(crate) fn read(&self) -> std::sync::RwLockReadGuard<'_, Tables> {
        self.tables.read().expect("no holder of this lock panics")
    }

    pub(crate) fn write(&self) -> std::sync::RwLockWriteGuard<'_, Tables> {
        self.tables.write().expect("no holder of this lock panics")
    }

    /// Drops the removals that no stream needs any more.
    pub(crate) fn prune(&self) {
        let Some(oldest) = self.read().oldest_removal() else {
            return;
        };
        let low_watermark = self.tracker.low_watermark();
        if oldest <= low_watermark {
            self.write().prune(low_watermark);
        }
    }

    /// Counts requests for secrets that do not exist.
    pub(crate) fn count_unknown(&self, names: u64) {
        let is_notified = self.unknown.send_if_modified(|total| {
            let before = *total;
            *total += names;
            *total / UNKNOWN_PER_NOTIFICATION != before / UNKNOWN_PER_NOTIFICATION
        });
        if is_notified {
            self.any_unknown.send_modify(|n| *n += 1);
        }
    }

    /// Changes the suspects; `change` returns true if it changed them.
    pub(crate) fn suspect(&self, change: impl FnOnce(&mut Suspects) -> bool) {
        let mut tables = self.write();
        if change(Arc::make_mut(&mut tables.suspects)) {
            self.suspects.send_replace(tables.suspects.clone());
        }
    }

    pub(crate) fn watch_suspects(&self) -> watch::Receiver<Arc<Suspects>> {
        self.suspects.subscribe()
    }

    pub(crate) fn watch_unknown(&self) -> watch::Receiver<u64> {
        self.unknown.subscribe()
    }

    /// Records that a client acknowledged `resources`. The first acknowledgement of a version takes
    /// the write lock, the others only the read lock.
    pub(crate) fn acknowledge<'a>(&self, resources: impl Iterator<Item = &'a Arc<Resource>>) {
        let fresh: Vec<_> = {
            let tables = self.read();
            resources
                .filter(|r| !tables.is_acknowledged(r))
                .cloned()
                .collect()
        };
        if !fresh.is_empty() {
            let mut tables = self.write();
            for resource in fresh {
                tables.acknowledge(&resource);
            }
        }
    }
}
