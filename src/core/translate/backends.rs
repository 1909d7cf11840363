//! Backends: the Service ports that resources refer to, each of them a cluster that all share.
//!
//! A backend is compiled when the first resource refers to it, when what it is made from changes, and is taken back
//! with the last reference.

use std::collections::BTreeMap;

use super::delta::ResourceKey;
use super::dirty::Dirty;
use crate::model::{AppProtocol, BackendId, ByFleet, ClusterId, EnvoyFleet, Fleets, ObjectName, ServicePort};

/// The backends that are in use, each with the number of resources of each fleet that refer to it.
#[derive(Default)]
pub(super) struct Backends {
    used: BTreeMap<BackendId, ByFleet<usize>>,
}

impl Backends {
    /// Counts one resource of a fleet more that refers to a backend; marks it if it is the first, of all or of the fleet.
    pub(super) fn acquire(&mut self, id: &BackendId, fleet: EnvoyFleet, dirty: &mut Dirty) {
        let users = self.used.entry(id.clone()).or_default();
        if fleets(users) == Fleets::default() {
            dirty.backends.insert(id.clone());
        }
        users[fleet] += 1;
        if users[fleet] == 1 {
            show(id, dirty);
        }
    }

    /// Counts one resource of a fleet less that refers to a backend; marks it if it was the last, of all or of the fleet.
    pub(super) fn release(&mut self, id: &BackendId, fleet: EnvoyFleet, dirty: &mut Dirty) {
        let users = self.used.get_mut(id).expect("counted when it was used");
        users[fleet] -= 1;
        if users[fleet] == 0 {
            show(id, dirty);
        }
        if fleets(users) == Fleets::default() {
            self.used.remove(id);
            dirty.backends.insert(id.clone());
        }
    }

    /// The fleets of which some resource refers to a backend.
    pub(super) fn fleets(&self, id: &BackendId) -> Fleets {
        self.used.get(id).map(fleets).unwrap_or_default()
    }

    /// Whether a resource refers to a backend.
    pub(super) fn is_used(&self, id: &BackendId) -> bool {
        self.used.contains_key(id)
    }

    /// The backends in use of a Service, however they are spoken to: what has to be compiled anew where the content of
    /// one changes.
    pub(super) fn of_service(&self, service: &ObjectName) -> impl Iterator<Item = &BackendId> {
        let start = BackendId::new(ServicePort::first(service.clone()), AppProtocol::Http1);
        self.used.range(start..).map(|(id, _)| id).take_while(move |id| id.port.service == *service)
    }
}

fn fleets(users: &ByFleet<usize>) -> Fleets {
    Fleets { shared: users.shared > 0, dedicated: users.dedicated > 0 }
}

/// Other fleets than before see a backend, and where it leads.
fn show(id: &BackendId, dirty: &mut Dirty) {
    let endpoints = ResourceKey::Endpoints(ClusterId::Backend(id.clone()));
    dirty.show([ResourceKey::Backend(id.clone()), endpoints]);
}
