//! Reserved addresses in a cluster: those that do not belong to pods of tenants.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::inputs::{EndpointSlice, Kind, ObjectKey, Service};
use crate::model::{GatewayAddress, ObjectName};
use crate::multimap::MultiMap;

/// The holder of a reserved address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// This installation: its Envoys, its replicas, and the addresses of its Services.
    Installation,
    /// The API server.
    ApiServer,
    /// A Service.
    Service,
    /// A node, and with it every pod on the host network.
    Node,
}

/// Reserved addresses with their holders. Without a namespace of the installation there are none.
#[derive(Default)]
pub struct Reserved {
    /// The namespace of the installation, in which no tenant can write.
    home: Option<Arc<str>>,
    installation: MultiMap<IpAddr, ObjectKey>,
    others: MultiMap<IpAddr, (Holder, ObjectKey)>,
    /// The addresses of Gateways that have a Service of their own, with that Service.
    gateways: MultiMap<IpAddr, ObjectName>,
    nodes: BTreeMap<ObjectName, BTreeSet<(IpAddr, Holder)>>,
}

impl Reserved {
    pub(super) fn new(home: Option<Arc<str>>) -> Self {
        Self {
            home,
            ..Self::default()
        }
    }

    /// True if a namespace is the installation's own.
    pub fn is_home(&self, namespace: &str) -> bool {
        self.home.as_deref() == Some(namespace)
    }

    /// True if this is a cluster, in which addresses have holders.
    pub fn in_cluster(&self) -> bool {
        self.home.is_some()
    }

    /// The Services of Gateways with an address. A tenant can request any address of a load
    /// balancer, so this means nothing for an address of a pod.
    pub fn gateways_at(&self, address: &IpAddr) -> impl Iterator<Item = &ObjectName> {
        self.gateways.of(address)
    }

    /// The holder of an address.
    pub fn holder(&self, address: &IpAddr) -> Option<Holder> {
        if self.is_installation(address) {
            Some(Holder::Installation)
        } else {
            self.others.first(address).map(|(holder, _)| *holder)
        }
    }

    /// True if an address belongs to this installation.
    pub fn is_installation(&self, address: &IpAddr) -> bool {
        self.installation.first(address).is_some()
    }

    /// The addresses of this installation.
    pub fn installation(&self) -> impl Iterator<Item = &IpAddr> {
        let all = self.installation.from(IpAddr::from([0, 0, 0, 0]));
        all.map(|(address, _)| address)
    }

    /// Applies a change of a Service; returns the affected addresses.
    pub(super) fn service(&mut self, old: Option<&Service>, new: Option<&Service>) -> Vec<IpAddr> {
        let home = self.home.clone();
        fn of(service: Option<&Service>, home: &Option<Arc<str>>) -> BTreeSet<(IpAddr, Holder)> {
            let mut all = BTreeSet::new();
            let Some((service, home)) = service.zip(home.as_ref()) else {
                return all;
            };
            // Addresses of load balancers are trusted for our own Services alone: a tenant may
            // request any address (`spec.loadBalancerIP`), and would take it from the pod that has
            // it.
            let reached = service.reached.iter().filter_map(|reached| match reached {
                GatewayAddress::Ip(ip) if service.meta.name.namespace == *home => {
                    Some((*ip, Holder::Installation))
                }
                _ => None,
            });
            all.extend(reached);
            all.extend(service.cluster_ips.iter().map(|ip| (*ip, Holder::Service)));
            all
        }
        let Some(name) = old.or(new).map(|service| service.meta.name.clone()) else {
            return Vec::new();
        };
        let mut concerned = self.front(&name, old, new);
        concerned.extend(self.replace(
            &ObjectKey::new(Kind::Service, name),
            &of(old, &home),
            &of(new, &home),
        ));
        concerned
    }

    /// Applies a change of a Service that was made for a Gateway; returns the affected addresses.
    fn front(
        &mut self,
        name: &ObjectName,
        old: Option<&Service>,
        new: Option<&Service>,
    ) -> Vec<IpAddr> {
        fn of(
            service: Option<&Service>,
            this: &Reserved,
        ) -> (BTreeSet<IpAddr>, Option<BTreeSet<u16>>) {
            let made = service.filter(|service| this.in_cluster() && service.made.is_some());
            let reached = made
                .into_iter()
                .flat_map(|service| &service.reached)
                .filter_map(|reached| match reached {
                    GatewayAddress::Ip(ip) => Some(*ip),
                    GatewayAddress::Hostname(_) => None,
                });
            let own = made
                .into_iter()
                .flat_map(|service| service.cluster_ips.iter().copied());
            // Its ports matter as well.
            let ports = made.map(|service| {
                service
                    .ports
                    .iter()
                    .map(|port| port.port)
                    .collect::<BTreeSet<_>>()
            });
            (reached.chain(own).collect::<BTreeSet<IpAddr>>(), ports)
        }
        let before = of(old, self);
        let after = of(new, self);
        if before == after {
            return Vec::new();
        }
        before
            .0
            .difference(&after.0)
            .for_each(|ip| self.gateways.remove(ip, name));
        after
            .0
            .iter()
            .for_each(|ip| self.gateways.insert(*ip, name.clone()));
        before.0.union(&after.0).copied().collect()
    }

    /// Sets the addresses of a node; returns the affected addresses.
    pub(super) fn node(&mut self, name: &ObjectName, addresses: &[IpAddr]) -> Vec<IpAddr> {
        let new: BTreeSet<_> = addresses
            .iter()
            .map(|ip| (*ip, Holder::Node))
            .filter(|_| self.in_cluster())
            .collect();
        let old = self.nodes.remove(name).unwrap_or_default();
        let concerned = self.replace(&ObjectKey::new(Kind::Node, name.clone()), &old, &new);
        if !new.is_empty() {
            self.nodes.insert(name.clone(), new);
        }
        concerned
    }

    /// Applies a change of an EndpointSlice; returns the affected addresses.
    pub(super) fn slice(
        &mut self,
        old: Option<&EndpointSlice>,
        new: Option<&EndpointSlice>,
    ) -> Vec<IpAddr> {
        let home = self.home.clone();
        fn of(
            slice: Option<&EndpointSlice>,
            home: &Option<Arc<str>>,
        ) -> BTreeSet<(IpAddr, Holder)> {
            let Some((slice, home)) = slice.zip(home.as_ref()) else {
                return BTreeSet::new();
            };
            let holder = if slice.meta.name.namespace == *home {
                Holder::Installation
            } else if slice.service.as_ref().is_some_and(is_api_server) {
                Holder::ApiServer
            } else {
                return BTreeSet::new();
            };
            slice.addresses.iter().map(|ip| (*ip, holder)).collect()
        }
        let Some(name) = old.or(new).map(|slice| slice.meta.name.clone()) else {
            return Vec::new();
        };
        self.replace(
            &ObjectKey::new(Kind::EndpointSlice, name),
            &of(old, &home),
            &of(new, &home),
        )
    }

    fn replace(
        &mut self,
        key: &ObjectKey,
        old: &BTreeSet<(IpAddr, Holder)>,
        new: &BTreeSet<(IpAddr, Holder)>,
    ) -> Vec<IpAddr> {
        let gone = old.difference(new).map(|entry| (entry, false));
        let come = new.difference(old).map(|entry| (entry, true));
        let changed: Vec<_> = gone.chain(come).collect();
        for ((address, holder), there) in &changed {
            match holder {
                Holder::Installation => self.installation.set(address, key, *there),
                Holder::ApiServer | Holder::Service | Holder::Node => {
                    self.others.set(address, &(*holder, key.clone()), *there)
                }
            }
        }
        changed
            .into_iter()
            .map(|((address, _), _)| *address)
            .collect()
    }
}

/// True if a Service is the one through which pods reach the API server.
fn is_api_server(service: &ObjectName) -> bool {
    (&*service.namespace, &*service.name) == ("default", "kubernetes")
}
