//! The subscriptions to scopes that Envoy has because of its listeners.
//!
//! Envoy (1.40) subscribes to all scopes with the first listener that uses scopes, by the legacy
//! form of the wildcard, and has them as long as such a listener exists or drains. With the last
//! one it forgets them and does not unsubscribe; scopes that arrive then are acknowledged and
//! dropped; and for the next listener that uses scopes it sends no request. Therefore scopes are
//! sent to a client of listeners only while it has one that uses scopes, and all of them after a
//! listener with a source that no other of its listeners has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Resource;
use crate::demand::Demand;
use crate::subscription::Item;

/// Encoded `ScopedRds` messages.
type Sources = Arc<[Vec<u8>]>;

/// The sources of scopes of a client's listeners.
#[derive(Debug, Default)]
pub(super) struct ScopeSources {
    listeners: BTreeMap<Arc<str>, Listener>,
    /// True if a listener with a new source was sent before the client subscribed to scopes.
    new: bool,
}

/// The sources of one listener.
#[derive(Debug, Default)]
struct Listener {
    /// Sources of the accepted version; None if that has no scopes. Empty if the version is
    /// unknown, which may have scopes.
    accepted: Option<Sources>,
    /// Sources of the version that is not answered yet; None if that has no scopes or is a removal.
    sent: Option<Sources>,
    /// True while a version or a removal is not answered yet.
    in_flight: bool,
}

impl Listener {
    /// A listener with an answered version, and nothing in flight.
    fn answered(accepted: Option<Sources>) -> Listener {
        Listener {
            accepted,
            sent: None,
            in_flight: false,
        }
    }

    /// Sources that the client keeps, whether it accepts or refuses what is in flight.
    fn kept(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.accepted
            .iter()
            .flat_map(|sources| sources.iter())
            .filter(|source| !self.in_flight || self.sent.iter().any(|sent| sent.contains(source)))
    }
}

fn of(resource: &Resource) -> Option<Sources> {
    match resource.demand() {
        Demand::Scopes(sources) => Some(sources.clone()),
        Demand::Nothing | Demand::Assignment(_) => None,
    }
}

impl ScopeSources {
    /// Returns true if a listener of the client uses scopes.
    pub(super) fn any(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Records that the client has a listener.
    pub(super) fn has(&mut self, listener: &Resource) {
        self.put(listener.shared_name(), Listener::answered(of(listener)));
    }

    /// Records that the client has an unknown version of a listener, which may use scopes.
    pub(super) fn has_older(&mut self, name: &Arc<str>) {
        self.put(name, Listener::answered(Some(Arc::default())));
    }

    /// Records listeners that are sent; returns true if one of them has a source that no listener
    /// of the client keeps until then.
    ///
    /// A listener with a change in an earlier response that is not answered yet keeps only what
    /// both versions have: the client may remove it, and forget the scopes, before it reads this
    /// response. Changes within one response are one change to Envoy.
    pub(super) fn sent(&mut self, items: &[Item]) -> bool {
        let had: BTreeSet<Vec<u8>> = self
            .listeners
            .values()
            .flat_map(Listener::kept)
            .cloned()
            .collect();
        let mut new = false;
        for item in items {
            let sent = item.resource().and_then(|listener| of(listener));
            new |= sent
                .iter()
                .flat_map(|sources| sources.iter())
                .any(|source| !had.contains(source));
            let accepted = self
                .listeners
                .get(item.name())
                .and_then(|listener| listener.accepted.clone());
            self.put(
                item.name(),
                Listener {
                    accepted,
                    sent,
                    in_flight: true,
                },
            );
        }
        new
    }

    /// Records that the client accepted a listener; returns true if it uses scopes and is not among
    /// those of the client: it unsubscribed from the listener and subscribed again since that was
    /// sent.
    pub(super) fn accepted(&mut self, item: &Item) -> bool {
        let accepted = item.resource().and_then(|listener| of(listener));
        let is_new = accepted.is_some() && !self.listeners.contains_key(item.name());
        self.put(item.name(), Listener::answered(accepted));
        is_new
    }

    /// Records that the client refused a listener.
    pub(super) fn refused(&mut self, item: &Item) {
        let accepted = self
            .listeners
            .get(item.name())
            .and_then(|listener| listener.accepted.clone());
        self.put(item.name(), Listener::answered(accepted));
    }

    /// Forgets listeners that the client is not subscribed to any more.
    pub(super) fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.listeners.retain(|name, _| wanted(name));
    }

    /// Records that a listener with a new source was sent before the client subscribed to scopes.
    pub(super) fn note_new(&mut self) {
        self.new = true;
    }

    /// Returns and clears that record; scopes that the client then reports are from before that
    /// listener.
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
