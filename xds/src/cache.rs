//! The cache: one encoded copy of each resource, by view.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::{Progress, Resource, ResourceType};

/// A named set of resources. Whoever sees one view knows nothing of the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct View(pub Arc<str>);

/// Counts publications; grows with each.
pub type Generation = u64;

/// Resources that come, change or go together.
#[derive(Clone, Default)]
pub struct Update {
    /// New or different.
    pub upserts: Vec<Resource>,
    /// Gone.
    pub removals: Vec<(ResourceType, Arc<str>)>,
}

/// How many changes of a type are remembered; a client that is further behind is compared with everything.
const LOG: usize = 8192;

/// All resources, and what clients have of them. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Cache {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<Generation>,
    progress: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    generation: Generation,
    views: BTreeMap<View, BTreeMap<ResourceType, Shelf>>,
    clients: BTreeMap<u64, Progress>,
    last_client: u64,
}

/// The resources of one type in one view.
#[derive(Default)]
pub(crate) struct Shelf {
    resources: HashMap<Arc<str>, Resource>,
    /// Names by the generation that touched them, oldest first.
    log: VecDeque<(Generation, Arc<str>)>,
    /// Changes up to this generation are no longer in the log.
    forgotten: Generation,
}

impl Shelf {
    pub(crate) fn get(&self, name: &str) -> Option<&Resource> {
        self.resources.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.resources.keys()
    }

    /// Names touched after `since`, each with the generation that did; `None` when that is no longer known.
    pub(crate) fn touched(&self, since: Generation) -> Option<impl Iterator<Item = &(Generation, Arc<str>)>> {
        (since >= self.forgotten).then(|| {
            let start = self.log.partition_point(|(generation, _)| *generation <= since);
            self.log.range(start..)
        })
    }

    fn note(&mut self, generation: Generation, name: Arc<str>) {
        self.log.push_back((generation, name));
        if self.log.len() > LOG
            && let Some((generation, _)) = self.log.pop_front()
        {
            self.forgotten = generation;
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}

impl Cache {
    /// A cache without anything.
    pub fn new() -> Self {
        Self { state: Arc::default(), changed: watch::Sender::new(0), progress: watch::Sender::new(0) }
    }

    /// Publishes a change of a view, as a whole. What says the same as what is held keeps its bytes and version.
    /// Returns the generation that clients have to acknowledge.
    pub fn publish(&self, view: &View, update: Update) -> Generation {
        let mut state = self.state();
        let generation = state.generation + 1;
        let shelves = state.views.entry(view.clone()).or_default();
        let mut changed = false;
        for resource in update.upserts {
            let shelf = shelves.entry(resource.kind).or_default();
            if shelf.resources.get(&resource.name).is_some_and(|held| held.says_the_same(&resource)) {
                continue;
            }
            shelf.note(generation, resource.name.clone());
            shelf.resources.insert(resource.name.clone(), resource);
            changed = true;
        }
        for (kind, name) in update.removals {
            let shelf = shelves.entry(kind).or_default();
            if shelf.resources.remove(&name).is_some() {
                shelf.note(generation, name);
                changed = true;
            }
        }
        if changed {
            state.generation = generation;
            drop(state);
            self.changed.send_replace(generation);
            return generation;
        }
        state.generation
    }

    /// How far each connected client is.
    pub fn progress(&self) -> Vec<Progress> {
        self.state().clients.values().cloned().collect()
    }

    /// Changes whenever [`Cache::progress`] does.
    pub fn watch_progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// A resource of a view, as it would be sent.
    pub fn get(&self, view: &View, kind: ResourceType, name: &str) -> Option<Resource> {
        self.state().views.get(view)?.get(&kind)?.get(name).cloned()
    }

    /// Changes whenever something is published.
    pub(crate) fn watch(&self) -> watch::Receiver<Generation> {
        self.changed.subscribe()
    }

    /// Looks at the shelves of a view; nothing can change meanwhile.
    pub(crate) fn look<T>(&self, view: &View, look: impl FnOnce(Generation, &BTreeMap<ResourceType, Shelf>) -> T) -> T {
        static EMPTY: BTreeMap<ResourceType, Shelf> = BTreeMap::new();
        let state = self.state();
        look(state.generation, state.views.get(view).unwrap_or(&EMPTY))
    }

    /// Takes note of a client; the number names it from now on.
    pub(crate) fn connect(&self, progress: Progress) -> u64 {
        let mut state = self.state();
        state.last_client += 1;
        let client = state.last_client;
        state.clients.insert(client, progress);
        drop(state);
        self.progress.send_modify(|count| *count += 1);
        client
    }

    /// Takes note of how far a client is.
    pub(crate) fn advance(&self, client: u64, progress: Progress) {
        let mut state = self.state();
        if state.clients.get(&client) == Some(&progress) {
            return;
        }
        state.clients.insert(client, progress);
        drop(state);
        self.progress.send_modify(|count| *count += 1);
    }

    /// Forgets a client that is gone.
    pub(crate) fn disconnect(&self, client: u64) {
        self.state().clients.remove(&client);
        self.progress.send_modify(|count| *count += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the cache")
    }
}
