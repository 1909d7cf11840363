//! Backends: the Service ports that resources refer to. Each is one cluster, which all resources
//! share.
//!
//! A backend is compiled when the first resource refers to it and when its inputs change, and is
//! removed with the last reference.

use super::dirty::Dirty;
use super::uses::{Edge, Uses};
use crate::delta::ResourceKey;
use gatewright_objects::model::{
    AppProtocol, BackendId, ClusterId, EnvoyFleet, Fleets, ObjectName, ServicePort,
};

/// The backends in use, with the number of resources of each fleet that refer to each.
#[derive(Default)]
pub(crate) struct Backends {
    used: Uses<BackendId>,
}

impl Backends {
    /// Adds a reference of a fleet's resource to a backend; marks the backend if it is the first,
    /// of all or of the fleet.
    pub(crate) fn acquire(&mut self, id: &BackendId, fleet: EnvoyFleet, dirty: &mut Dirty) {
        touch(id, self.used.acquire(id, fleet), dirty);
    }

    /// Removes a reference of a fleet's resource to a backend; marks the backend if it was the
    /// last, of all or of the fleet.
    pub(crate) fn release(&mut self, id: &BackendId, fleet: &EnvoyFleet, dirty: &mut Dirty) {
        touch(id, self.used.release(id, fleet), dirty);
    }

    /// The fleets with resources that refer to a backend.
    pub(crate) fn fleets(&self, id: &BackendId) -> Fleets {
        self.used.fleets(id)
    }

    /// True if a resource refers to a backend.
    pub(crate) fn is_used(&self, id: &BackendId) -> bool {
        self.used.has(id)
    }

    /// The backends in use of a Service, of any protocol: all must be compiled again when the
    /// Service changes.
    pub(crate) fn of_service(&self, service: &ObjectName) -> impl Iterator<Item = &BackendId> {
        let start = BackendId::new(ServicePort::first(service.clone()), AppProtocol::Http1);
        self.used
            .from(start)
            .take_while(move |id| id.port.service == *service)
    }
}

/// Marks a backend that begins or ceases to be used, and its cluster and endpoints as seen by other
/// fleets than before.
fn touch(id: &BackendId, edge: Edge, dirty: &mut Dirty) {
    if edge.of_all {
        dirty.backends.insert(id.clone());
    }
    if edge.of_fleet {
        let endpoints = ResourceKey::Endpoints(ClusterId::Backend(id.clone()));
        dirty.show([ResourceKey::Backend(id.clone()), endpoints]);
    }
}
