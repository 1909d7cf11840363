//! The addresses behind Service ports, and which clusters lead there.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use super::delta::{Resource, ResourceKey};
use super::engine::{Dirty, Engine};
use crate::model::{ClusterId, Endpoints, ObjectName, ServicePort};

/// What is kept of a Service port that some cluster leads to.
#[derive(Default)]
pub(super) struct PortState {
    clusters: BTreeSet<ClusterId>,
    /// Its ready addresses, sorted.
    addresses: Arc<[SocketAddr]>,
}

impl Engine {
    /// Notes to which Service port a cluster leads from now on.
    pub(super) fn lead(&mut self, cluster: ClusterId, port: Option<ServicePort>, dirty: &mut Dirty) {
        let before = match &port {
            Some(port) => self.leads.insert(cluster.clone(), port.clone()),
            None => self.leads.remove(&cluster),
        };
        if before == port {
            return;
        }
        if let Some(port) = port {
            let state = self.ports.entry(port.clone()).or_default();
            if state.clusters.is_empty() {
                dirty.endpoints.insert(port);
            }
            state.clusters.insert(cluster.clone());
        }
        if let Some(before) = before
            && let Some(state) = self.ports.get_mut(&before)
        {
            state.clusters.remove(&cluster);
            if state.clusters.is_empty() {
                self.ports.remove(&before);
            }
        }
        dirty.assignments.insert(cluster);
    }

    /// The endpoints of a Service changed.
    pub(super) fn touch_endpoints(&self, service: &ObjectName, dirty: &mut Dirty) {
        let start = ServicePort { service: service.clone(), port: 0 };
        let ports = self.ports.range(start..).map(|(port, _)| port).take_while(|port| port.service == *service);
        dirty.endpoints.extend(ports.cloned());
    }

    /// Looks up the ready addresses of a Service port that some cluster leads to.
    pub(super) fn compile_endpoints(&mut self, port: &ServicePort, dirty: &mut Dirty) {
        let addresses = self.addresses_behind(port);
        let Some(state) = self.ports.get_mut(port) else { return };
        if *state.addresses != *addresses {
            state.addresses = addresses.into();
            dirty.assignments.extend(state.clusters.iter().cloned());
        }
    }

    /// Hands out the endpoints of a cluster, or takes them back where it is gone or has none to be asked for.
    pub(super) fn compile_assignment(&mut self, cluster: ClusterId, dirty: &mut Dirty) {
        let state = self.leads.get(&cluster).and_then(|port| self.ports.get(port));
        let addresses = state.map(|state| state.addresses.clone());
        let resource = addresses.map(|addresses| Endpoints { cluster: cluster.clone(), addresses });
        self.emit(ResourceKey::Endpoints(cluster), resource.map(Resource::Endpoints), dirty);
    }

    /// The ready addresses of a Service port, sorted.
    pub(super) fn addresses_behind(&self, port: &ServicePort) -> Vec<SocketAddr> {
        let service = self.store.service(&port.service);
        let name = service.and_then(|s| s.ports.iter().find(|p| p.port == port.port)).map(|p| p.name.clone());
        let mut addresses = BTreeSet::new();
        if let Some(name) = name {
            for slice in self.store.slices(&port.service).filter(|slice| self.quotas.serves(slice)) {
                for (_, number) in slice.ports.iter().filter(|(n, _)| *n == name) {
                    addresses.extend(slice.addresses.iter().map(|ip| SocketAddr::new(*ip, *number)));
                }
            }
        }
        addresses.into_iter().collect()
    }
}
