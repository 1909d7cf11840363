//! What emitted resources refer to, with the number of resources of each fleet that do.

use std::collections::BTreeMap;

use gatewright_objects::model::{EnvoyFleet, Fleets, ObjectName};

/// The things in use, which have these keys.
pub(crate) struct Uses<K>(BTreeMap<K, Users>);

/// Whether a reference is the first, or was the last.
pub(crate) struct Edge {
    /// Of all references.
    pub(crate) of_all: bool,
    /// Of the references of its fleet.
    pub(crate) of_fleet: bool,
}

/// The number of resources of each fleet that refer to a thing.
#[derive(Default)]
struct Users {
    shared: usize,
    dedicated: usize,
    /// The number by Gateway; a Gateway without such resources has no entry.
    isolated: BTreeMap<ObjectName, usize>,
}

impl<K> Default for Uses<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Uses<K> {
    /// Adds a reference of a fleet's resource.
    pub(crate) fn acquire(&mut self, key: &K, fleet: EnvoyFleet) -> Edge {
        let users = self.0.entry(key.clone()).or_default();
        let of_all = users.is_empty();
        let of_fleet = users.add(fleet);
        Edge { of_all, of_fleet }
    }

    /// Removes a reference of a fleet's resource, which was added before.
    pub(crate) fn release(&mut self, key: &K, fleet: &EnvoyFleet) -> Edge {
        let users = self.0.get_mut(key).expect("counted when it was used");
        let of_fleet = users.take_back(fleet);
        let of_all = users.is_empty();
        if of_all {
            self.0.remove(key);
        }
        Edge { of_all, of_fleet }
    }

    /// The fleets with resources that refer to a thing.
    pub(crate) fn fleets(&self, key: &K) -> Fleets {
        self.0.get(key).map(Users::fleets).unwrap_or_default()
    }

    /// True if a resource refers to a thing.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// The keys of the things in use from this one on.
    pub(crate) fn from(&self, start: K) -> impl Iterator<Item = &K> {
        self.0.range(start..).map(|(key, _)| key)
    }
}

impl Users {
    /// Counts one resource more of a fleet. Returns whether it is the first of the fleet.
    fn add(&mut self, fleet: EnvoyFleet) -> bool {
        let count = match fleet {
            EnvoyFleet::Shared => &mut self.shared,
            EnvoyFleet::Dedicated => &mut self.dedicated,
            EnvoyFleet::Isolated(gateway) => self.isolated.entry(gateway).or_default(),
        };
        *count += 1;
        *count == 1
    }

    /// Counts one resource less of a fleet, which was counted before. Returns whether it was the
    /// last of the fleet.
    fn take_back(&mut self, fleet: &EnvoyFleet) -> bool {
        let count = match fleet {
            EnvoyFleet::Shared => &mut self.shared,
            EnvoyFleet::Dedicated => &mut self.dedicated,
            EnvoyFleet::Isolated(gateway) => self
                .isolated
                .get_mut(gateway)
                .expect("counted when it was used"),
        };
        *count -= 1;
        let is_last = *count == 0;
        if let (EnvoyFleet::Isolated(gateway), true) = (fleet, is_last) {
            self.isolated.remove(gateway);
        }
        is_last
    }

    fn is_empty(&self) -> bool {
        self.shared == 0 && self.dedicated == 0 && self.isolated.is_empty()
    }

    fn fleets(&self) -> Fleets {
        let isolated = self.isolated.keys().cloned().collect();
        Fleets {
            shared: self.shared > 0,
            dedicated: self.dedicated > 0,
            isolated,
        }
    }
}
