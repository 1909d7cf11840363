//! Subscriptions to scopes that Envoy has by its listeners.
//!
//! Envoy (1.40) asks for all scopes when the first listener wants some, with the legacy form of the wildcard, and has them as long as
//! such a listener is there or drains. When the last is gone it forgets them and does not unsubscribe; scopes that come then are
//! acknowledged and dropped; and for the next listener that wants some it asks for nothing. So scopes are sent to a client of
//! listeners only while it has one that wants some, and all of them after a listener with a source that no other of its listeners
//! has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Resource;
use crate::demand::Demand;
use crate::subscription::Item;

/// Encoded `ScopedRds` messages.
type Sources = Arc<[Vec<u8>]>;

/// The sources of scopes of the listeners that a client has.
#[derive(Debug, Default)]
pub(super) struct ScopeSources {
    listeners: BTreeMap<Arc<str>, Listener>,
    /// Whether a listener with a new source was sent before the client asked for scopes.
    new: bool,
}

/// The sources of one listener.
#[derive(Debug, Default)]
struct Listener {
    /// Of the version that the client has accepted; none where that is not known, which is not a listener without scopes.
    accepted: Option<Sources>,
    /// Of the version that it has not answered yet.
    sent: Option<Sources>,
}

impl Listener {
    fn sources(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.accepted.iter().chain(&self.sent).flat_map(|sources| sources.iter())
    }
}

fn of(resource: &Resource) -> Option<Sources> {
    match resource.demand() {
        Demand::Scopes(sources) => Some(sources.clone()),
        Demand::Nothing | Demand::Assignment(_) => None,
    }
}

impl ScopeSources {
    /// Whether a listener of the client wants scopes.
    pub(super) fn any(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Notes that the client has a listener.
    pub(super) fn has(&mut self, listener: &Resource) {
        self.put(listener.shared_name(), Listener { accepted: of(listener), sent: None });
    }

    /// Notes that the client has some version of a listener, by which it may have scopes.
    pub(super) fn has_older(&mut self, name: &Arc<str>) {
        self.put(name, Listener { accepted: Some(Arc::default()), sent: None });
    }

    /// Notes what is sent of listeners; whether one of them has a source that none before had.
    pub(super) fn sent(&mut self, items: &[Item]) -> bool {
        let had: BTreeSet<Vec<u8>> = self.listeners.values().flat_map(Listener::sources).cloned().collect();
        let mut new = false;
        for item in items {
            let sent = item.resource().and_then(|listener| of(listener));
            new |= sent.iter().flat_map(|sources| sources.iter()).any(|source| !had.contains(source));
            let accepted = self.listeners.get(item.name()).and_then(|listener| listener.accepted.clone());
            self.put(item.name(), Listener { accepted, sent });
        }
        new
    }

    /// Notes that the client accepted what was sent of a listener.
    pub(super) fn accepted(&mut self, item: &Item) {
        let accepted = item.resource().and_then(|listener| of(listener));
        self.put(item.name(), Listener { accepted, sent: None });
    }

    /// Notes that the client refused what was sent of a listener.
    pub(super) fn refused(&mut self, item: &Item) {
        let accepted = self.listeners.get(item.name()).and_then(|listener| listener.accepted.clone());
        self.put(item.name(), Listener { accepted, sent: None });
    }

    /// Forgets the listeners that the client does not ask for any more.
    pub(super) fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.listeners.retain(|name, _| wanted(name));
    }

    /// Notes that a listener with a new source was sent while the client had not asked for scopes.
    pub(super) fn note_new(&mut self) {
        self.new = true;
    }

    /// Whether that was so; what the client says then that it has of scopes is from before that listener.
    pub(super) fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.new)
    }

    fn put(&mut self, name: &Arc<str>, listener: Listener) {
        if listener.accepted.is_none() && listener.sent.is_none() {
            self.listeners.remove(name);
        } else {
            self.listeners.insert(name.clone(), listener);
        }
    }
}
