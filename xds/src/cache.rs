//! The interface of the owner: publish resources into views, read back the progress of the nodes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use tokio::sync::{broadcast, watch};

use crate::ack_tracker::{AckTracker, Event, Progress};
use crate::counters::{Counters, Counts};
use crate::debug::ViewState;
use crate::suspects::Suspects;
use crate::view::{Generation, View};
use crate::view_store::ViewStore;
use crate::{Kind, Resource};

/// A group of changes that take effect together.
#[derive(Clone, Debug, Default)]
pub struct Update {
    /// Resources to add or replace.
    pub upserts: Vec<Resource>,
    /// Names to remove.
    pub removals: Vec<(Kind, String)>,
}

/// The resources of all views. Cheap to clone; all clones share one cache.
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

struct Inner {
    generation: AtomicU64,
    view_stores: RwLock<BTreeMap<View, Arc<ViewStore>>>,
    events: broadcast::Sender<Event>,
    counters: Counters,
    /// Changes with the progress of any view; `unknown` with the unknown secrets of any view.
    progressed: Arc<watch::Sender<u64>>,
    unknown: Arc<watch::Sender<u64>>,
}

impl Default for Cache {
    fn default() -> Self {
        Cache::new()
    }
}

impl Cache {
    /// An empty cache.
    pub fn new() -> Cache {
        let (events, _) = broadcast::channel(1024);
        Cache(Arc::new(Inner {
            generation: AtomicU64::new(0),
            view_stores: RwLock::default(),
            events,
            counters: Counters::default(),
            progressed: Arc::default(),
            unknown: Arc::default(),
        }))
    }

    /// Publishes a group of changes into `view`. A stream sees the whole group or nothing of it.
    ///
    /// A resource that equals the published one, by value, is no change and keeps its bytes and
    /// version. If nothing changes, the view's latest generation is returned: a client that
    /// acknowledged it has the update.
    pub fn publish(&self, view: &View, update: Update) -> Generation {
        let view_store = self.view_store(view);
        let low_watermark = view_store.tracker.low_watermark();
        let (generation, applied, changed) = {
            let mut tables = view_store.write();
            let next = self.0.generation.fetch_add(1, Ordering::SeqCst) + 1;
            let applied = tables.apply(next, update.upserts, &update.removals, low_watermark);
            (tables.generation, applied, tables.generation == next)
        };
        self.0.counters.published(&applied);
        if changed {
            view_store.published.notify_waiters();
        }
        generation
    }

    /// Makes `resources` the exact content of `view`. The cost is proportional to the size of the
    /// view; prefer [`Cache::publish`].
    pub fn replace(&self, view: &View, resources: Vec<Resource>) -> Generation {
        let wanted: std::collections::BTreeSet<(Kind, &str)> =
            resources.iter().map(|r| (r.kind(), r.name())).collect();
        let removals = {
            let view_store = self.view_store(view);
            let tables = view_store.read();
            Kind::ALL
                .iter()
                .flat_map(|kind| tables.table(*kind).resources())
                .filter(|r| !wanted.contains(&(r.kind(), r.name())))
                .map(|r| (r.kind(), r.name().to_owned()))
                .collect()
        };
        self.publish(
            view,
            Update {
                upserts: resources,
                removals,
            },
        )
    }

    /// Returns the resource of this kind and name in `view`.
    pub fn get(&self, view: &View, kind: Kind, name: &str) -> Option<Resource> {
        self.existing(view)?
            .read()
            .table(kind)
            .current(name)
            .map(|r| Resource::clone(r))
    }

    /// Returns all resources of `view`, and their generation.
    pub fn resources(&self, view: &View) -> (Generation, Vec<Resource>) {
        let Some(view_store) = self.existing(view) else {
            return (0, Vec::new());
        };
        let tables = view_store.read();
        let all = Kind::ALL
            .iter()
            .flat_map(|kind| tables.table(*kind).resources());
        (
            tables.generation,
            all.map(|resource| Resource::clone(resource)).collect(),
        )
    }

    /// Returns the number of resources of `kind` in the view.
    pub fn len(&self, view: &View, kind: Kind) -> usize {
        self.existing(view)
            .map_or(0, |view_store| view_store.read().table(kind).len())
    }

    /// Returns true if the view has no resources.
    pub fn is_empty(&self, view: &View) -> bool {
        Kind::ALL.into_iter().all(|kind| self.len(view, kind) == 0)
    }

    /// Returns the progress of the nodes of `view`, and the resources that they refuse.
    pub fn progress(&self, view: &View) -> Progress {
        let view_store = self.view_store(view);
        let published = view_store.read().generation;
        view_store.tracker.report(published)
    }

    /// Returns a receiver that changes with [`Cache::progress`] of `view`. Changes coalesce, none
    /// is lost.
    pub fn watch(&self, view: &View) -> watch::Receiver<u64> {
        self.view_store(view).tracker.watch()
    }

    /// Returns a receiver of the number of on-demand secrets that clients of `view` requested and
    /// that do not exist. Names of such secrets come from untrusted clients, so that many of them
    /// at once are an attack; the number is updated about every hundredth.
    pub fn watch_unknown(&self, view: &View) -> watch::Receiver<u64> {
        self.view_store(view).watch_unknown()
    }

    /// Returns a receiver that changes with [`Cache::progress`] of any view, including later ones.
    pub fn watch_all(&self) -> watch::Receiver<u64> {
        self.0.progressed.subscribe()
    }

    /// Returns a receiver that changes with [`Cache::unknown`] of any view, about once in a hundred
    /// names.
    pub fn watch_all_unknown(&self) -> watch::Receiver<u64> {
        self.0.unknown.subscribe()
    }

    /// Returns the number of on-demand secrets that clients of `view` requested and that do not
    /// exist; see [`Cache::watch_unknown`].
    pub fn unknown(&self, view: &View) -> u64 {
        self.existing(view)
            .map_or(0, |view_store| *view_store.watch_unknown().borrow())
    }

    /// Removes `view`, unless streams of it are still open, which would wait for a view that is
    /// never published again. Returns true if it is removed. The caller has revoked its clients
    /// before ([`crate::Views::revoke`]).
    pub fn remove(&self, view: &View) -> bool {
        let mut view_stores = self
            .0
            .view_stores
            .write()
            .expect("no holder of this lock panics");
        if let Some(view_store) = view_stores
            .get(view)
            .filter(|view_store| Arc::strong_count(view_store) > 1)
        {
            // Wakes the streams, which check their grant.
            view_store.published.notify_waiters();
            return false;
        }
        view_stores.remove(view);
        true
    }

    /// Returns a receiver of the parts that clients of `view` refused, to be persisted for
    /// [`Cache::suspect`] after the next start.
    pub fn suspects(&self, view: &View) -> watch::Receiver<Arc<Suspects>> {
        self.view_store(view).watch_suspects()
    }

    /// Sets parts that clients refused earlier: a client that connects to `view` gets them only
    /// after the rest of their resources. Once a client accepts them, they are sent as any others.
    pub fn suspect(&self, view: &View, suspects: Suspects) {
        self.view_store(view).suspect(|known| {
            let is_new = *known != suspects;
            *known = suspects;
            is_new
        });
    }

    /// Returns a receiver of the events of all views from now on. A receiver that falls behind by
    /// 1024 events loses some and gets an error; [`Cache::progress`] always has the current state.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.0.events.subscribe()
    }

    /// Returns the counts of encoded, sent, acknowledged and refused resources.
    pub fn counts(&self) -> Counts {
        self.0.counters.read()
    }

    /// Returns the state of all views and streams, for an operator.
    pub fn debug(&self) -> Vec<ViewState> {
        let view_stores: Vec<_> = self
            .0
            .view_stores
            .read()
            .expect("no holder of this lock panics")
            .values()
            .cloned()
            .collect();
        view_stores.into_iter().map(state).collect()
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    fn existing(&self, view: &View) -> Option<Arc<ViewStore>> {
        self.0
            .view_stores
            .read()
            .expect("no holder of this lock panics")
            .get(view)
            .cloned()
    }

    pub(crate) fn view_store(&self, view: &View) -> Arc<ViewStore> {
        if let Some(view_store) = self.existing(view) {
            return view_store;
        }
        let mut view_stores = self
            .0
            .view_stores
            .write()
            .expect("no holder of this lock panics");
        view_stores
            .entry(view.clone())
            .or_insert_with(|| {
                Arc::new(ViewStore::new(
                    view.clone(),
                    self.0.unknown.clone(),
                    tracker(view, &self.0),
                ))
            })
            .clone()
    }
}

fn state(view_store: Arc<ViewStore>) -> ViewState {
    let (generation, resources) = {
        let tables = view_store.read();
        let counts = Kind::ALL
            .into_iter()
            .map(|kind| (kind.label(), tables.table(kind).len()));
        (tables.generation, counts.filter(|(_, n)| *n > 0).collect())
    };
    ViewState {
        view: view_store.view.name().to_owned(),
        generation,
        resources,
        streams: view_store.tracker.streams(),
    }
}

fn tracker(view: &View, inner: &Inner) -> AckTracker {
    AckTracker::new(view.clone(), inner.progressed.clone(), inner.events.clone())
}
