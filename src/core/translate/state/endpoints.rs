//! Endpoints of Service ports: which addresses may be used, and which clusters have them.
//!
//! A tenant who may write EndpointSlices may write any address. In a cluster an address is used if
//! it belongs to a pod of the same namespace that the endpoint names: tenants cannot write the
//! addresses of pods. Others are left out, and reported in the statuses of routes to the Service,
//! and of listeners whose filters name it. Addresses of names are judged in `named_endpoints`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::cluster_targets::ClusterTargets;
use super::dirty::Dirty;
use super::emissions::Emissions;
use super::frontends::Frontends;
use super::log_collectors;
use super::quotas::Quotas;
use crate::delta::{Resource, ResourceKey};
use crate::key::{ParentKey, RouteKey, Verdict};
use crate::rule::settings::Settings;
use gatewright_objects::address_forms::forms;
use gatewright_objects::inputs::EndpointSlice;
use gatewright_objects::model::{
    Addresses, ClusterId, Endpoints, ObjectName, Reason, ServicePort, Transport, TransportPort,
    WeightedEndpoints, Zone, ZoneEndpoints,
};
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::store::{Holder, Store};

/// The label of namespaces whose endpoints need not be their pods: they may be outside of the
/// cluster, or at addresses of nodes, Services, the API server and Envoys. Its value is `any`.
/// Tenants must not be able to set it.
pub const ENDPOINTS_LABEL: &str = "gatewright.io/endpoints";
/// The largest number of refused endpoints that a message names.
const NAMED: usize = 3;

/// Service ports that are targets of clusters.
#[derive(Default)]
pub(crate) struct ServiceEndpoints {
    /// The targets of each cluster.
    targets: HashMap<ClusterId, ClusterTargets>,
    ports: BTreeMap<ServicePort, PortState>,
    /// The ports by the addresses of their endpoints, refused ones included, in all [`forms`].
    by_address: MultiMap<IpAddr, ServicePort>,
    /// The identifier in `CDN-Loop` of requests that the installation has forwarded.
    cdn_id: Arc<str>,
}

impl ServiceEndpoints {
    /// Without any ports, in this installation.
    pub(crate) fn new(installation: &str) -> Self {
        Self {
            cdn_id: cdn_id(installation),
            ..Self::default()
        }
    }

    /// The identifier in `CDN-Loop` of requests that the installation has forwarded.
    pub(crate) fn cdn_id(&self) -> Arc<str> {
        self.cdn_id.clone()
    }
}

/// The identifier of an installation: the same for all its replicas, and different from that of
/// other installations, which may have forwarded a request before.
fn cdn_id(installation: &str) -> Arc<str> {
    let hash: String = Sha256::digest(installation)
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("gatewright-{hash}").into()
}

/// The state of a Service port that is the target of some cluster.
#[derive(Default)]
struct PortState {
    clusters: BTreeSet<ClusterId>,
    /// Its addresses that are used, sorted.
    addresses: Arc<[SocketAddr]>,
    /// The same by zone, where the Service asks for those of an Envoy's own first.
    zones: Option<Arc<[ZoneEndpoints]>>,
    /// Its addresses that may not be used.
    refused: Box<[SocketAddr]>,
    /// Why they may not be used, or why a name has none.
    problem: Option<(Reason, Box<str>)>,
}

impl PortState {
    fn forms(&self) -> BTreeSet<IpAddr> {
        self.addresses
            .iter()
            .chain(&self.refused)
            .flat_map(|address| forms(address.ip()))
            .collect()
    }
}

impl ServiceEndpoints {
    /// Sets the target of a cluster.
    pub(crate) fn set_targets(
        &mut self,
        cluster: ClusterId,
        targets: Option<ClusterTargets>,
        store: &Store,
        dirty: &mut Dirty,
    ) {
        let before = match &targets {
            Some(targets) => self.targets.insert(cluster.clone(), targets.clone()),
            None => self.targets.remove(&cluster),
        };
        if before == targets {
            return;
        }
        let old = before.as_ref().map(ClusterTargets::ports);
        let new = targets.as_ref().map(ClusterTargets::ports);
        let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
        for &port in new.difference(&old) {
            let state = self.ports.entry(port.clone()).or_default();
            if state.clusters.is_empty() {
                dirty.endpoints.insert(port.clone());
                mark_name(&port.service, store, dirty);
            }
            state.clusters.insert(cluster.clone());
        }
        for &port in old.difference(&new) {
            let Some(state) = self.ports.get_mut(port) else {
                continue;
            };
            state.clusters.remove(&cluster);
            if state.clusters.is_empty() {
                self.forget_port(port, store, dirty);
            }
        }
        dirty.assignments.insert(cluster);
    }

    fn forget_port(&mut self, port: &ServicePort, store: &Store, dirty: &mut Dirty) {
        let Some(state) = self.ports.remove(port) else {
            return;
        };
        mark_name(&port.service, store, dirty);
        for form in state.forms() {
            self.by_address.remove(&form, port);
        }
        if state.problem.is_some() {
            touch_users(port, store, dirty);
        }
    }

    /// Marks the ports of a Service whose endpoints changed.
    pub(crate) fn touch_endpoints(&self, service: &ObjectName, dirty: &mut Dirty) {
        dirty.endpoints.extend(self.ports_of(service).cloned());
    }

    /// True if a Service is the target of some cluster.
    pub(crate) fn has_targets(&self, service: &ObjectName) -> bool {
        self.ports_of(service).next().is_some()
    }

    fn ports_of(&self, service: &ObjectName) -> impl Iterator<Item = &ServicePort> {
        let start = ServicePort::first(service.clone());
        let ports = self.ports.range(start..).map(|(port, _)| port);
        ports.take_while(move |port| port.service == *service)
    }

    /// Marks what depends on a changed Namespace: its labels decide which addresses its endpoints
    /// may have. The installation's own namespace also determines its identifier.
    pub(crate) fn touch_namespace(
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
        dirty.endpoints.extend(
            ports
                .take_while(|port| port.service.namespace == *namespace)
                .cloned(),
        );
    }

    /// Marks the ports with an endpoint at one of the addresses, whose permission may have changed.
    pub(crate) fn touch_addresses<'a>(
        &self,
        addresses: impl IntoIterator<Item = &'a IpAddr>,
        dirty: &mut Dirty,
    ) {
        for address in addresses {
            dirty.endpoints.extend(self.by_address.of(address).cloned());
        }
    }

    /// Marks the ports with an endpoint at an address on which Envoys begin or cease to listen.
    pub(crate) fn touch_socket(
        &self,
        address: IpAddr,
        settings: &Settings,
        store: &Store,
        dirty: &mut Dirty,
    ) {
        if !address.is_unspecified() {
            return self.touch_addresses([&address], dirty);
        }
        self.touch_addresses(&settings.default_addresses, dirty);
        self.touch_addresses(store.reserved().installation(), dirty);
        for start in [
            Ipv4Addr::new(127, 0, 0, 0).into(),
            Ipv6Addr::LOCALHOST.into(),
        ] {
            let from = self
                .by_address
                .from(start)
                .take_while(|(address, _)| address.is_loopback());
            dirty
                .endpoints
                .extend(from.flat_map(|(_, ports)| ports).cloned());
        }
    }

    /// Determines the addresses of a Service port that is the target of some cluster.
    pub(crate) fn compile(
        &mut self,
        port: &ServicePort,
        allowed: AllowedEndpoints<'_>,
        dirty: &mut Dirty,
    ) {
        if !self.ports.contains_key(port) {
            return;
        }
        let PermittedEndpoints {
            addresses,
            zones,
            refused,
            problem,
            terminating: _,
        } = allowed.permitted(port);
        let zones = zones.map(|zones| by_zone(&addresses, &zones).into());
        let problem = problem.map(|(reason, text)| (reason, text.into_boxed_str()));
        let refused: Box<[SocketAddr]> = refused.into_iter().map(|(address, _)| address).collect();
        let ServiceEndpoints {
            ports, by_address, ..
        } = self;
        let state = ports.get_mut(port).expect("looked up above");
        if state.zones != zones {
            state.zones = zones;
            dirty.assignments.extend(state.clusters.iter().cloned());
        }
        if *state.addresses != *addresses || state.refused != refused {
            let before = state.forms();
            if *state.addresses != *addresses {
                if state.addresses.is_empty() != addresses.is_empty() {
                    log_collectors::touch_users(&port.service, allowed.store, dirty);
                }
                state.addresses = addresses.into();
                dirty.assignments.extend(state.clusters.iter().cloned());
            }
            state.refused = refused;
            let after = state.forms();
            before
                .difference(&after)
                .for_each(|form| by_address.remove(form, port));
            after
                .difference(&before)
                .for_each(|form| by_address.insert(*form, port.clone()));
        }
        if state.problem != problem {
            state.problem = problem;
            touch_users(port, allowed.store, dirty);
        }
    }

    /// True if a Service port is the target of a cluster, and has no endpoint that may be used.
    pub(crate) fn is_empty(&self, port: &ServicePort) -> bool {
        self.ports
            .get(port)
            .is_some_and(|state| state.addresses.is_empty())
    }

    /// Returns whether all endpoints of Service ports may be used.
    pub(crate) fn verdict(&self, ports: impl IntoIterator<Item = ServicePort>) -> Verdict {
        let problem = ports
            .into_iter()
            .find_map(|port| self.ports.get(&port)?.problem.as_ref());
        problem.map_or(Ok(()), |(reason, text)| {
            Err((*reason, text.clone().into_string()))
        })
    }
}

/// Marks the name of a Service, if it has one, which may begin or cease to be wanted.
fn mark_name(service: &ObjectName, store: &Store, dirty: &mut Dirty) {
    if store
        .service(service)
        .is_some_and(|found| found.external_name.is_some())
    {
        dirty.names.insert(service.clone());
    }
}

/// Marks the statuses of routes to a Service, of Gateways and ListenerSets whose filters name it,
/// and of Gateways and classes whose access logs go to it.
fn touch_users(port: &ServicePort, store: &Store, dirty: &mut Dirty) {
    log_collectors::touch_users(&port.service, store, dirty);
    dirty.statuses.extend(
        store
            .indexes()
            .parents_by_service(&port.service)
            .map(ParentKey::object),
    );
    dirty.statuses.extend(
        store
            .indexes()
            .routes_by_service(&port.service)
            .map(RouteKey::object),
    );
}

/// The stage that emits the endpoints of a cluster, or removes them if it has no target any more.
pub(crate) fn compile_assignment(
    cluster: ClusterId,
    service_endpoints: &ServiceEndpoints,
    emissions: &mut Emissions,
    dirty: &mut Dirty,
) {
    let of = |port: &ServicePort| Some(service_endpoints.ports.get(port)?.addresses.clone());
    let addresses = service_endpoints
        .targets
        .get(&cluster)
        .and_then(|targets| match targets {
            ClusterTargets::One(port) => {
                let state = service_endpoints.ports.get(port)?;
                Some(match &state.zones {
                    Some(zones) => Addresses::Zoned(zones.clone()),
                    None => Addresses::Alike(state.addresses.clone()),
                })
            }
            ClusterTargets::Weighted(all) => Some(weighted(all, of, service_endpoints)),
        });
    let resource = addresses.map(|addresses| Endpoints {
        cluster: cluster.clone(),
        addresses,
    });
    emissions.emit(
        ResourceKey::Endpoints(cluster),
        resource.map(Resource::Endpoints),
        dirty,
    );
}

/// The endpoints of a Service port.
#[derive(Debug, Default)]
pub(crate) struct PermittedEndpoints {
    /// Those that are used, sorted.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The zones of those that have one, where the Service asks for those of an Envoy's own first.
    pub(crate) zones: Option<BTreeMap<SocketAddr, Zone>>,
    /// True if none of them is ready: they terminate and still serve.
    pub(crate) terminating: bool,
    /// Those that may not be used, with the reasons.
    pub(crate) refused: Vec<(SocketAddr, String)>,
    /// The message about them, or about a name without addresses.
    pub(crate) problem: Option<(Reason, String)>,
}

impl PermittedEndpoints {
    /// Why nothing is sent to the Service port; `None` if it has endpoints that are used.
    pub(crate) fn unreached(&self, port: &ServicePort) -> Option<String> {
        if !self.addresses.is_empty() {
            return None;
        }
        let port = port.in_words();
        Some(match (self.refused.first(), &self.problem) {
            (Some((address, why)), _) => {
                format!("{port}: nothing is sent to its endpoint {address} ({why})")
            }
            (None, Some((_, problem))) => problem.clone(),
            (None, None) => format!("{port} has no endpoint that is ready or still serves"),
        })
    }
}

/// The states that decide which endpoints may be used.
#[derive(Clone, Copy)]
pub(crate) struct AllowedEndpoints<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) quotas: &'a Quotas,
    /// No endpoint may be a socket on which Envoys listen.
    pub(crate) frontends: &'a Frontends,
}

impl AllowedEndpoints<'_> {
    /// Returns the endpoints of a Service port: the ready ones, or, if none of them may be used,
    /// those that terminate and still serve (KEP-1669). Those of a Service of type ExternalName are
    /// the addresses of its name, whatever slices there are.
    pub(crate) fn permitted(self, port: &ServicePort) -> PermittedEndpoints {
        match self.store.service(&port.service) {
            Some(service) if service.external_name.is_some() => self.named(port, service),
            _ => {
                let mut permitted = self.of_slices(port);
                permitted.problem = (!permitted.refused.is_empty()).then(|| {
                    let text = refusal(port, &permitted.refused);
                    (Reason::EndpointNotPermitted, text)
                });
                permitted
            }
        }
    }

    /// Returns those that slices list.
    fn of_slices(self, port: &ServicePort) -> PermittedEndpoints {
        let mut ready = self.judged(port, |slice| &slice.addresses);
        if !ready.addresses.is_empty() {
            return ready;
        }
        let PermittedEndpoints {
            addresses,
            zones,
            refused,
            ..
        } = self.judged(port, |slice| &slice.terminating);
        ready.refused.extend(refused);
        PermittedEndpoints {
            terminating: !addresses.is_empty(),
            addresses,
            zones,
            refused: ready.refused,
            problem: None,
        }
    }

    /// Judges some addresses of the slices of a Service port.
    fn judged(self, port: &ServicePort, of: fn(&EndpointSlice) -> &[IpAddr]) -> PermittedEndpoints {
        let service = self.store.service(&port.service);
        let name = service
            .and_then(|service| service.port(port.port, port.transport))
            .map(|p| p.name.clone());
        // Each address, and whether it belongs to the pod that the endpoint names.
        let mut addresses: BTreeMap<SocketAddr, bool> = BTreeMap::new();
        let mut zones = service
            .filter(|service| service.prefers_zone())
            .map(|_| BTreeMap::new());
        if let Some(name) = name {
            for slice in self
                .store
                .slices(&port.service)
                .filter(|slice| self.quotas.serves(slice))
            {
                let numbers = || {
                    slice
                        .ports
                        .iter()
                        .filter(|(n, of)| *n == name && of.transport == port.transport)
                        .map(|(_, of)| of.number)
                };
                for ip in of(slice) {
                    let is_pod =
                        self.store.reserved().in_cluster() && self.store.is_of_its_pod(slice, *ip);
                    numbers().for_each(|number| {
                        *addresses.entry(SocketAddr::new(*ip, number)).or_default() |= is_pod
                    });
                    if let (Some(zones), Some(zone)) = (&mut zones, slice.zone_of(*ip)) {
                        for number in numbers() {
                            zones
                                .entry(SocketAddr::new(*ip, number))
                                .or_insert_with(|| zone.clone());
                        }
                    }
                }
            }
        }
        let mut judged = PermittedEndpoints {
            addresses: Vec::with_capacity(addresses.len()),
            zones,
            ..Default::default()
        };
        for (address, is_pod) in addresses {
            match self.refuses(port, address, is_pod) {
                None => judged.addresses.push(address),
                Some(why) => judged.refused.push((address, why)),
            }
        }
        judged
    }

    /// Returns why an endpoint of a namespace may not have an address; `is_pod` is true for the
    /// address of a pod of that namespace. `None` if it may.
    fn refuses(self, port: &ServicePort, address: SocketAddr, is_pod: bool) -> Option<String> {
        let namespace = &port.service.namespace;
        if let Some(why) = self.refuses_everywhere(port, address, is_pod) {
            return Some(why);
        }
        let reserved = self.store.reserved();
        if !reserved.in_cluster()
            || reserved.is_home(namespace)
            || is_trusted(namespace, self.store)
        {
            return None;
        }
        let what = match self.held(address.ip()) {
            Some(held) => held,
            None if is_pod => return None,
            None => "not the address of a running pod of this namespace that its targetRef names",
        };
        Some(what.to_owned())
    }

    /// Returns why an endpoint of no namespace may have an address.
    pub(crate) fn refuses_everywhere(
        self,
        port: &ServicePort,
        address: SocketAddr,
        is_pod: bool,
    ) -> Option<String> {
        if let Some(why) = self.settings.endpoints.refuses(address.ip()) {
            return Some(why);
        }
        if self.listens(address, port.transport) || !is_pod && self.fronts(address) {
            return Some("where Envoy listens itself".to_owned());
        }
        self.answers(&port.service, address)
            .then(|| "where Gatewright listens itself".to_owned())
    }

    /// Returns what has an address that tenants' endpoints may not have, in words.
    pub(crate) fn held(self, ip: IpAddr) -> Option<&'static str> {
        let reserved = self.store.reserved();
        let holder = forms(ip).find_map(|form| reserved.holder(&form))?;
        Some(match holder {
            Holder::Installation => "an address of Gatewright and its Envoys",
            Holder::ApiServer => "an address of the API server",
            Holder::Service => "the address of a Service",
            Holder::Node => "the address of a node",
        })
    }

    /// True if a Gateway with a Service of its own has an address.
    fn fronts(self, address: SocketAddr) -> bool {
        forms(address.ip()).any(|form| {
            self.store.reserved().gateways_at(&form).any(|name| {
                let service = self.store.service(name);
                service.is_some_and(|service| {
                    service.ports.iter().any(|port| port.port == address.port())
                })
            })
        })
    }

    /// True if Envoys listen at an address: bound to it, or to all addresses of theirs.
    fn listens(self, address: SocketAddr, transport: Transport) -> bool {
        let port = TransportPort {
            number: address.port(),
            transport,
        };
        forms(address.ip()).any(|form| {
            bound(form, &port, self.frontends)
                || self.is_of_envoys(form) && everywhere(&port, self.frontends)
        })
    }

    /// True if the program itself listens at an address, for other Services than this one.
    fn answers(self, service: &ObjectName, address: SocketAddr) -> bool {
        let others = self
            .settings
            .own_sockets
            .iter()
            .filter(|own| own.service.as_ref() != Some(service));
        let mut ips = others
            .map(|own| own.address)
            .filter(|own| own.port() == address.port())
            .map(|own| own.ip());
        ips.any(|ip| {
            forms(address.ip())
                .any(|form| form == ip || ip.is_unspecified() && self.is_of_envoys(form))
        })
    }

    /// True for an address of the machines of Envoys, as far as they are known.
    fn is_of_envoys(self, ip: IpAddr) -> bool {
        ip.is_loopback()
            || self.settings.default_addresses.contains(&ip)
            || self.store.reserved().is_installation(&ip)
    }
}

fn is_trusted(namespace: &Arc<str>, store: &Store) -> bool {
    store
        .labels(namespace)
        .get(ENDPOINTS_LABEL)
        .is_some_and(|value| value == "any")
}

fn bound(ip: IpAddr, port: &TransportPort, frontends: &Frontends) -> bool {
    frontends.has_socket(ip, *port)
}

fn everywhere(port: &TransportPort, frontends: &Frontends) -> bool {
    bound(Ipv4Addr::UNSPECIFIED.into(), port, frontends)
        || bound(Ipv6Addr::UNSPECIFIED.into(), port, frontends)
}

/// The endpoints of shares. A single one has them by zone where its Service asks for that; several
/// have weights, and no zones.
fn weighted(
    all: &[(Option<ServicePort>, u32)],
    of: impl Fn(&ServicePort) -> Option<Arc<[SocketAddr]>>,
    service_endpoints: &ServiceEndpoints,
) -> Addresses {
    let shares = shares(all, of);
    if let [share] = shares.as_slice()
        && let Some(state) = share
            .port
            .as_ref()
            .and_then(|port| service_endpoints.ports.get(port))
        && let Some(zones) = &state.zones
    {
        return Addresses::Zoned(zones.clone());
    }
    Addresses::Weighted(shares)
}

/// Sorted addresses by their zones, those without a zone first.
fn by_zone(addresses: &[SocketAddr], zones: &BTreeMap<SocketAddr, Zone>) -> Vec<ZoneEndpoints> {
    let mut all: BTreeMap<Option<Zone>, Vec<SocketAddr>> = BTreeMap::new();
    for address in addresses {
        let zone = zones.get(address).cloned();
        all.entry(zone).or_default().push(*address);
    }
    all.into_iter()
        .map(|(zone, addresses)| ZoneEndpoints { zone, addresses })
        .collect()
}

/// Merges shares by Service port. The share of a port without addresses is discarded, so that no
/// other port gets more than its share.
fn shares(
    all: &[(Option<ServicePort>, u32)],
    of: impl Fn(&ServicePort) -> Option<Arc<[SocketAddr]>>,
) -> Vec<WeightedEndpoints> {
    let mut shares: BTreeMap<Option<ServicePort>, WeightedEndpoints> = BTreeMap::new();
    for (port, weight) in all.iter().filter(|(_, weight)| *weight > 0) {
        let addresses = port
            .as_ref()
            .and_then(&of)
            .filter(|addresses| !addresses.is_empty());
        let port = port.clone().filter(|_| addresses.is_some());
        let share = shares.entry(port.clone()).or_insert(WeightedEndpoints {
            port,
            weight: 0,
            addresses: Arc::default(),
        });
        share.weight = share.weight.saturating_add(*weight);
        share.addresses = addresses.unwrap_or_default();
    }
    shares.into_values().collect()
}

/// The message about refused endpoints.
fn refusal(port: &ServicePort, refused: &[(SocketAddr, String)]) -> String {
    format!(
        "Service {} port {}: nothing is sent to endpoints {}: have its EndpointSlices list its own pods",
        port.service,
        port.port,
        in_words(refused)
    )
}

/// The first refused endpoints, with the reasons, and the number of others.
pub(crate) fn in_words(refused: &[(SocketAddr, String)]) -> String {
    let named: Vec<String> = refused
        .iter()
        .take(NAMED)
        .map(|(address, why)| format!("{address} ({why})"))
        .collect();
    let more = match refused.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}

#[cfg(test)]
mod tests;
