//! The addresses behind Service ports, which of them may be used, and which clusters lead there.
//!
//! A tenant who may write EndpointSlices may write any address. In a cluster one is used if it is that of a pod of the same
//! namespace, which the endpoint names: tenants cannot write where a pod is. Others are left out, and the routes that lead
//! to their Service say so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::delta::{Resource, ResourceKey};
use super::denied::forms;
use super::dirty::Dirty;
use super::emissions::Emissions;
use super::frontends::Frontends;
use super::key::{RouteKey, Verdict};
use super::lead::Lead;
use super::limits::Quotas;
use super::settings::Settings;
use crate::inputs::Route;
use crate::model::{Addresses, ClusterId, Endpoints, ObjectName, Reason, ServicePort, Share, Transport, TransportPort};
use crate::multimap::MultiMap;
use crate::store::{Holder, Store};

/// The label of namespaces whose endpoints may be others than their pods: outside of the cluster, and at addresses of nodes,
/// Services, the API server and Envoys. Its value is `any`. Tenants must not be able to set it.
const ENDPOINTS_LABEL: &str = "gatewright.io/endpoints";
/// So many endpoints that are left out are named.
const NAMED: usize = 3;

/// Service ports that clusters lead to.
#[derive(Default)]
pub(super) struct Behind {
    /// The Service ports of each cluster.
    leads: HashMap<ClusterId, Lead>,
    ports: BTreeMap<ServicePort, PortState>,
    /// The ports by the addresses of their endpoints, those that are left out as well, in all [`forms`].
    by_address: MultiMap<IpAddr, ServicePort>,
    /// How requests are marked that the installation has passed on.
    cdn_id: Arc<str>,
}

impl Behind {
    /// Nothing yet, in this installation.
    pub(super) fn new(installation: &str) -> Self {
        Self { cdn_id: cdn_id(installation), ..Self::default() }
    }

    /// How requests are marked that the installation has passed on.
    pub(super) fn cdn_id(&self) -> Arc<str> {
        self.cdn_id.clone()
    }
}

/// The mark of an installation: the same for all its replicas, and another than that of other installations, through which
/// requests may come.
fn cdn_id(installation: &str) -> Arc<str> {
    let hash: String = Sha256::digest(installation).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("gatewright-{hash}").into()
}

/// The state of a Service port that some cluster leads to.
#[derive(Default)]
struct PortState {
    clusters: BTreeSet<ClusterId>,
    /// Its ready addresses that may be used, sorted.
    addresses: Arc<[SocketAddr]>,
    /// Those that may not.
    refused: Box<[SocketAddr]>,
    /// Why not.
    told: Option<Box<str>>,
}

impl PortState {
    fn forms(&self) -> BTreeSet<IpAddr> {
        self.addresses.iter().chain(&self.refused).flat_map(|address| forms(address.ip())).collect()
    }
}

impl Behind {
    /// Notes where a cluster leads from now on.
    pub(super) fn lead(&mut self, cluster: ClusterId, lead: Option<Lead>, store: &Store, dirty: &mut Dirty) {
        let before = match &lead {
            Some(lead) => self.leads.insert(cluster.clone(), lead.clone()),
            None => self.leads.remove(&cluster),
        };
        if before == lead {
            return;
        }
        let (old, new) = (before.as_ref().map(Lead::ports), lead.as_ref().map(Lead::ports));
        let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
        for &port in new.difference(&old) {
            let state = self.ports.entry(port.clone()).or_default();
            if state.clusters.is_empty() {
                dirty.endpoints.insert(port.clone());
            }
            state.clusters.insert(cluster.clone());
        }
        for &port in old.difference(&new) {
            let Some(state) = self.ports.get_mut(port) else { continue };
            state.clusters.remove(&cluster);
            if state.clusters.is_empty() {
                self.forget_port(port, store, dirty);
            }
        }
        dirty.assignments.insert(cluster);
    }

    fn forget_port(&mut self, port: &ServicePort, store: &Store, dirty: &mut Dirty) {
        let Some(state) = self.ports.remove(port) else { return };
        for form in state.forms() {
            self.by_address.remove(&form, port);
        }
        if state.told.is_some() {
            touch_users(port, store, dirty);
        }
    }

    /// The endpoints of a Service changed.
    pub(super) fn touch_endpoints(&self, service: &ObjectName, dirty: &mut Dirty) {
        let start = ServicePort::first(service.clone());
        let ports = self.ports.range(start..).map(|(port, _)| port);
        dirty.endpoints.extend(ports.take_while(|port| port.service == *service).cloned());
    }

    /// A Namespace changed: with its labels may change which addresses its endpoints may have. The one of the installation
    /// tells it from others.
    pub(super) fn touch_namespace(
        &mut self,
        namespace: &Arc<str>,
        store: &Store,
        frontends: &Frontends,
        dirty: &mut Dirty,
    ) {
        if store.reserved().is_home(namespace)
            && let Some(uid) = store.uid(namespace)
        {
            let cdn_id = cdn_id(uid);
            if self.cdn_id != cdn_id {
                self.cdn_id = cdn_id;
                frontends.touch_all(dirty);
            }
        }
        let start = ServicePort::first(ObjectName::new(namespace.clone(), ""));
        let ports = self.ports.range(start..).map(|(port, _)| port);
        dirty.endpoints.extend(ports.take_while(|port| port.service.namespace == *namespace).cloned());
    }

    /// Other endpoints may have these addresses from now on than before.
    pub(super) fn touch_addresses<'a>(&self, addresses: impl IntoIterator<Item = &'a IpAddr>, dirty: &mut Dirty) {
        for address in addresses {
            dirty.endpoints.extend(self.by_address.of(address).cloned());
        }
    }

    /// Envoys listen at an address from now on, or no longer.
    pub(super) fn touch_socket(&self, address: IpAddr, settings: &Settings, store: &Store, dirty: &mut Dirty) {
        if !address.is_unspecified() {
            return self.touch_addresses([&address], dirty);
        }
        self.touch_addresses(&settings.default_addresses, dirty);
        self.touch_addresses(store.reserved().installation(), dirty);
        for start in [Ipv4Addr::new(127, 0, 0, 0).into(), Ipv6Addr::LOCALHOST.into()] {
            let from = self.by_address.from(start).take_while(|(address, _)| address.is_loopback());
            dirty.endpoints.extend(from.flat_map(|(_, ports)| ports).cloned());
        }
    }

    /// Looks up the addresses of a Service port that some cluster leads to.
    pub(super) fn compile(&mut self, port: &ServicePort, allowed: AllowedEndpoints<'_>, dirty: &mut Dirty) {
        if !self.ports.contains_key(port) {
            return;
        }
        let (addresses, refused) = allowed.permitted(port);
        let told = (!refused.is_empty()).then(|| refusal(port, &refused).into_boxed_str());
        let refused: Box<[SocketAddr]> = refused.into_iter().map(|(address, _)| address).collect();
        let Behind { ports, by_address, .. } = self;
        let state = ports.get_mut(port).expect("looked up above");
        if *state.addresses != *addresses || state.refused != refused {
            let before = state.forms();
            if *state.addresses != *addresses {
                state.addresses = addresses.into();
                dirty.assignments.extend(state.clusters.iter().cloned());
            }
            state.refused = refused;
            let after = state.forms();
            before.difference(&after).for_each(|form| by_address.remove(form, port));
            after.difference(&before).for_each(|form| by_address.insert(*form, port.clone()));
        }
        if state.told != told {
            state.told = told;
            touch_users(port, allowed.store, dirty);
        }
    }

    /// Whether all endpoints that a route leads to may be used.
    pub(super) fn verdict(&self, route: &Route) -> Verdict {
        let told = crate::store::target_ports(route).find_map(|port| self.ports.get(&port)?.told.as_deref());
        told.map_or(Ok(()), |text| Err((Reason::EndpointNotPermitted, text.to_owned())))
    }
}

/// Marks the routes that lead to a Service.
fn touch_users(port: &ServicePort, store: &Store, dirty: &mut Dirty) {
    dirty.statuses.extend(store.routes_by_service.of(&port.service).map(RouteKey::object));
}

/// The stage that hands out the endpoints of a cluster, or takes them back where it is gone or leads nowhere.
pub(super) fn compile_assignment(cluster: ClusterId, behind: &Behind, emissions: &mut Emissions, dirty: &mut Dirty) {
    let of = |port: &ServicePort| Some(behind.ports.get(port)?.addresses.clone());
    let addresses = behind.leads.get(&cluster).and_then(|lead| match lead {
        Lead::One(port) => of(port).map(Addresses::Alike),
        Lead::Shares(all) => Some(Addresses::Weighted(shares(all, of))),
    });
    let resource = addresses.map(|addresses| Endpoints { cluster: cluster.clone(), addresses });
    emissions.emit(ResourceKey::Endpoints(cluster), resource.map(Resource::Endpoints), dirty);
}

/// Which endpoints may be used.
#[derive(Clone, Copy)]
pub(super) struct AllowedEndpoints<'a> {
    pub(super) settings: &'a Settings,
    pub(super) store: &'a Store,
    pub(super) quotas: &'a Quotas,
    /// No endpoint may be where Envoys listen.
    pub(super) frontends: &'a Frontends,
}

impl AllowedEndpoints<'_> {
    /// The ready addresses of a Service port that may be used, and those that may not, with why.
    pub(super) fn permitted(self, port: &ServicePort) -> (Vec<SocketAddr>, Vec<(SocketAddr, String)>) {
        let service = self.store.service(&port.service);
        let name = service.and_then(|service| service.port(port.port, port.transport)).map(|p| p.name.clone());
        // Each address, and whether it is that of a pod that the endpoint names.
        let mut addresses: BTreeMap<SocketAddr, bool> = BTreeMap::new();
        if let Some(name) = name {
            for slice in self.store.slices(&port.service).filter(|slice| self.quotas.serves(slice)) {
                let is_it = |(n, of): &&(Arc<str>, TransportPort)| *n == name && of.transport == port.transport;
                let numbers = || slice.ports.iter().filter(is_it).map(|(_, of)| of.number);
                for ip in &slice.addresses {
                    let is_pod = self.store.reserved().in_cluster() && self.store.is_of_its_pod(slice, *ip);
                    numbers().for_each(|number| *addresses.entry(SocketAddr::new(*ip, number)).or_default() |= is_pod);
                }
            }
        }
        let (mut permitted, mut refused) = (Vec::with_capacity(addresses.len()), Vec::new());
        for (address, is_pod) in addresses {
            match self.refuses(port, address, is_pod) {
                None => permitted.push(address),
                Some(why) => refused.push((address, why)),
            }
        }
        (permitted, refused)
    }

    /// Why an endpoint of a namespace may not have an address, which is a pod's of that namespace or not; `None` where it
    /// may.
    fn refuses(self, port: &ServicePort, address: SocketAddr, is_pod: bool) -> Option<String> {
        let (namespace, ip) = (&port.service.namespace, address.ip());
        if let Some(why) = self.settings.endpoints.refuses(ip) {
            return Some(why);
        }
        if self.listens(address, port.transport) || !is_pod && self.fronts(address) {
            return Some("where Envoy listens itself".to_owned());
        }
        let reserved = self.store.reserved();
        let is_trusted = || self.store.labels(namespace).get(ENDPOINTS_LABEL).is_some_and(|value| value == "any");
        if !reserved.in_cluster() || reserved.is_home(namespace) || is_trusted() {
            return None;
        }
        let what = match forms(ip).find_map(|form| reserved.holder(&form)) {
            Some(Holder::Installation) => "an address of Gatewright and its Envoys",
            Some(Holder::ApiServer) => "an address of the API server",
            Some(Holder::Service) => "the address of a Service",
            Some(Holder::Node) => "the address of a node",
            None if is_pod => return None,
            None => "not the address of a running pod of this namespace that its targetRef names",
        };
        Some(what.to_owned())
    }

    /// Whether a Gateway with a Service of its own is reached at an address.
    fn fronts(self, address: SocketAddr) -> bool {
        let serves = |name: &ObjectName| {
            let service = self.store.service(name);
            service.is_some_and(|service| service.ports.iter().any(|port| port.port == address.port()))
        };
        forms(address.ip()).any(|form| self.store.reserved().gateways_at(&form).any(serves))
    }

    /// Whether Envoys listen at an address: on it, or on all that are theirs.
    fn listens(self, address: SocketAddr, transport: Transport) -> bool {
        let port = TransportPort { number: address.port(), transport };
        let bound = |ip: IpAddr| self.frontends.has_socket(ip, port);
        let is_theirs = |ip: &IpAddr| {
            ip.is_loopback()
                || self.settings.default_addresses.contains(ip)
                || self.store.reserved().is_installation(ip)
        };
        let everywhere = || bound(Ipv4Addr::UNSPECIFIED.into()) || bound(Ipv6Addr::UNSPECIFIED.into());
        forms(address.ip()).any(|form| bound(form) || is_theirs(&form) && everywhere())
    }
}

/// The shares by Service port, each once. What has no address is discarded: the others have no more than their part.
fn shares(all: &[(Option<ServicePort>, u32)], of: impl Fn(&ServicePort) -> Option<Arc<[SocketAddr]>>) -> Vec<Share> {
    let mut shares: BTreeMap<Option<ServicePort>, Share> = BTreeMap::new();
    for (port, weight) in all.iter().filter(|(_, weight)| *weight > 0) {
        let addresses = port.as_ref().and_then(&of).filter(|addresses| !addresses.is_empty());
        let port = port.clone().filter(|_| addresses.is_some());
        let share = shares.entry(port.clone()).or_insert(Share { port, weight: 0, addresses: Arc::default() });
        share.weight = share.weight.saturating_add(*weight);
        share.addresses = addresses.unwrap_or_default();
    }
    shares.into_values().collect()
}

/// The text about endpoints that are left out.
fn refusal(port: &ServicePort, refused: &[(SocketAddr, String)]) -> String {
    let named: Vec<String> = refused.iter().take(NAMED).map(|(address, why)| format!("{address} ({why})")).collect();
    let more = match refused.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "Service {} port {}: nothing is sent to endpoints {}{more}: have its EndpointSlices list its own pods",
        port.service,
        port.port,
        named.join(", ")
    )
}

#[cfg(test)]
mod tests;
