//! One view as streams share it: its tables, and what its clients have acknowledged.

use std::sync::{Arc, RwLock};

use tokio::sync::{Notify, watch};

use crate::Resource;
use crate::ack_tracker::AckTracker;
use crate::suspects::Suspects;
use crate::tables::Tables;
use crate::view::View;

/// A view with its readers: streams wait on `published`, the owner on the ledger.
pub(crate) struct TypeStore {
    pub(crate) view: View,
    pub(crate) tables: RwLock<Tables>,
    pub(crate) published: Arc<Notify>,
    pub(crate) tracker: AckTracker,
    /// How many on-demand secrets were asked for that did not exist.
    unknown: watch::Sender<u64>,
    /// That of all views.
    any_unknown: Arc<watch::Sender<u64>>,
    /// The suspects of the tables, for whoever keeps them.
    suspects: watch::Sender<Arc<Suspects>>,
}

/// Who waits for the count of unknown secrets hears of it once in so many.
const UNKNOWN_TOLD: u64 = 128;

impl TypeStore {
    pub(crate) fn new(view: View, any_unknown: Arc<watch::Sender<u64>>, tracker: AckTracker) -> TypeStore {
        TypeStore {
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

    /// Notes that secrets were asked for that do not exist.
    pub(crate) fn asked_in_vain(&self, names: u64) {
        let is_told = self.unknown.send_if_modified(|total| {
            let before = *total;
            *total += names;
            *total / UNKNOWN_TOLD != before / UNKNOWN_TOLD
        });
        if is_told {
            self.any_unknown.send_modify(|n| *n += 1);
        }
    }

    /// Changes what new clients are sent last; `change` says whether it did.
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

    /// Notes that a client acknowledged `resources`. The first acknowledgement of a version writes, the
    /// others only look.
    pub(crate) fn acknowledge<'a>(&self, resources: impl Iterator<Item = &'a Arc<Resource>>) {
        let fresh: Vec<_> = {
            let tables = self.read();
            resources.filter(|r| !tables.is_acknowledged(r)).cloned().collect()
        };
        if !fresh.is_empty() {
            let mut tables = self.write();
            for resource in fresh {
                tables.acknowledge(&resource);
            }
        }
    }
}
