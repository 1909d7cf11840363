//! Backends: the Service ports that resources refer to. Each is one cluster, which all resources
//! share.
//!
//! A backend is compiled when the first resource refers to it and when its inputs change, and is
//! removed with the last reference.

use std::collections::BTreeMap;

use super::delta::ResourceKey;
use super::dirty::Dirty;
use crate::model::{
    AppProtocol, BackendId, ClusterId, EnvoyFleet, Fleets, ObjectName, ServicePort,
};

/// The backends in use, with the number of resources of each fleet that refer to each.
#[derive(Default)]
pub(super) struct Backends {
    used: BTreeMap<BackendId, Users>,
}

/// The number of resources of each fleet that refer to a backend, or to the secrets of a login.
#[derive(Default)]
pub(super) struct Users {
    shared: usize,
    dedicated: usize,
    /// The number by Gateway; a Gateway without such resources has no entry.
    isolated: BTreeMap<ObjectName, usize>,
}

impl Users {
    /// Counts one resource more of a fleet. Returns whether it is the first of the fleet.
    pub(super) fn add(&mut self, fleet: EnvoyFleet) -> bool {
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
    pub(super) fn take_back(&mut self, fleet: &EnvoyFleet) -> bool {
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

    pub(super) fn is_empty(&self) -> bool {
        self.shared == 0 && self.dedicated == 0 && self.isolated.is_empty()
    }

    pub(super) fn fleets(&self) -> Fleets {
        let isolated = self.isolated.keys().cloned().collect();
        Fleets {
            shared: self.shared > 0,
            dedicated: self.dedicated > 0,
            isolated,
        }
    }
}

impl Backends {
    /// Adds a reference of a fleet's resource to a backend; marks the backend if it is the first,
    /// of all or of the fleet.
    pub(super) fn acquire(&mut self, id: &BackendId, fleet: EnvoyFleet, dirty: &mut Dirty) {
        let users = self.used.entry(id.clone()).or_default();
        if users.is_empty() {
            dirty.backends.insert(id.clone());
        }
        if users.add(fleet) {
            show(id, dirty);
        }
    }

    /// Removes a reference of a fleet's resource to a backend; marks the backend if it was the
    /// last, of all or of the fleet.
    pub(super) fn release(&mut self, id: &BackendId, fleet: &EnvoyFleet, dirty: &mut Dirty) {
        let users = self.used.get_mut(id).expect("counted when it was used");
        if users.take_back(fleet) {
            show(id, dirty);
        }
        if users.is_empty() {
            self.used.remove(id);
            dirty.backends.insert(id.clone());
        }
    }

    /// The fleets with resources that refer to a backend.
    pub(super) fn fleets(&self, id: &BackendId) -> Fleets {
        self.used.get(id).map(Users::fleets).unwrap_or_default()
    }

    /// True if a resource refers to a backend.
    pub(super) fn is_used(&self, id: &BackendId) -> bool {
        self.used.contains_key(id)
    }

    /// The backends in use of a Service, of any protocol: all must be compiled again when the
    /// Service changes.
    pub(super) fn of_service(&self, service: &ObjectName) -> impl Iterator<Item = &BackendId> {
        let start = BackendId::new(ServicePort::first(service.clone()), AppProtocol::Http1);
        self.used
            .range(start..)
            .map(|(id, _)| id)
            .take_while(move |id| id.port.service == *service)
    }
}

/// Marks the cluster of a backend and its endpoints as seen by other fleets than before.
fn show(id: &BackendId, dirty: &mut Dirty) {
    let endpoints = ResourceKey::Endpoints(ClusterId::Backend(id.clone()));
    dirty.show([ResourceKey::Backend(id.clone()), endpoints]);
}
