//! Listeners that tenancy withholds, stored beside their ListenerSets.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Store;
use crate::inputs::{Listener, ParentKey, SetKey};

impl Store {
    /// Sets the listeners of a ListenerSet that tenancy withholds, by name. Returns whether that
    /// changed the listeners of an existing ListenerSet.
    pub fn set_withheld(&mut self, set: &SetKey, listeners: BTreeSet<Arc<str>>) -> bool {
        if self
            .withheld
            .get(set)
            .map_or(listeners.is_empty(), |held| *held == listeners)
        {
            return false;
        }
        if listeners.is_empty() {
            self.withheld.remove(set);
        } else {
            self.withheld.insert(set.clone(), listeners);
        }
        self.tables.listener_sets.contains_key(set)
    }

    /// The listeners of a Gateway, or those of a ListenerSet that are not withheld; empty for an
    /// unknown parent.
    pub fn listeners(&self, parent: &ParentKey) -> impl Iterator<Item = &Arc<Listener>> {
        let (listeners, withheld) = match parent {
            ParentKey::Gateway(name) => (
                self.tables
                    .gateways
                    .get(name)
                    .map(|gateway| &gateway.listeners),
                None,
            ),
            ParentKey::ListenerSet(key) => (
                self.tables.listener_sets.get(key).map(|set| &set.listeners),
                self.withheld.get(key),
            ),
        };
        listeners
            .into_iter()
            .flatten()
            .filter(move |listener| !is_withheld(listener, withheld))
    }
}

fn is_withheld(listener: &Listener, withheld: Option<&BTreeSet<Arc<str>>>) -> bool {
    withheld.is_some_and(|names| names.contains(&listener.name))
}
