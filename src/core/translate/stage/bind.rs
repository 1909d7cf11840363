//! Binding of the frontends of Gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::client_addresses::clients_of;
use super::exposure::{made_service, ports_of};
use super::fleet::{gateway_exposure, shared_service_ports};
use super::frontend_logs;
use crate::key::ParentKey;
use crate::rule::gateway_exposure::{Fleet, is_shared};
use crate::rule::internal_ports::{recorded, reserved_ports};
use crate::rule::ownership::{By, Claimant};
use crate::rule::settings::Settings;
use crate::state::dirty::Dirty;
use crate::state::endpoints::ServiceEndpoints;
use crate::state::frontends::{FOR_CHALLENGES, Frontends};
use crate::state::gateway_services::GatewayServices;
use crate::state::named_service;
use crate::state::parent::GatewayPlacement;
use crate::state::parents::Parents;
use crate::state::policies::Policies;
use crate::state::policies::judged::Effect;
use crate::state::quotas::Quotas;
use crate::state::register::Register;
use gatewright_objects::inputs::{Address, Gateway};
use gatewright_objects::model::{
    Family, FrontendId, ObjectName, Tracing, Transport, TransportPort,
};
use gatewright_objects::ownership::{Ownable, Recording};
use gatewright_objects::store::Store;

/// The stage that binds frontends.
pub(crate) struct Binding<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) quotas: &'a Quotas,
    pub(crate) policies: &'a Policies,
    pub(crate) service_endpoints: &'a ServiceEndpoints,
    pub(crate) parents: &'a Parents,
    pub(crate) gateway_services: &'a mut GatewayServices,
    pub(crate) frontends: &'a mut Frontends,
    pub(crate) register: &'a mut Register,
}

impl Binding<'_> {
    /// Binds the frontends of a Gateway, or of the shared fleet, to addresses. Of two frontends
    /// that request one socket, the recorded owner's gets it, and within a namespace the older
    /// Gateway's.
    pub(crate) fn bind(&mut self, gateway: &ObjectName, dirty: &mut Dirty) {
        // The set of ports may have changed.
        dirty.services.insert(gateway.clone());
        let recorded = self.recorded_ports(gateway);
        self.gateway_services
            .record_ports(gateway, &recorded, dirty);
        self.request_ports(gateway, dirty);
        let ids: Vec<FrontendId> = self
            .frontends
            .of_gateway(gateway)
            .map(|(id, _)| id.clone())
            .collect();
        if ids.is_empty() {
            return;
        }
        let access_log =
            frontend_logs::of_frontends(gateway, self.parents, self.store, self.settings);
        let tracing = self.tracing(gateway).cloned();
        let (age, socket) = self.sockets_of(gateway);
        let reserved = reserved_ports(self.settings);
        let sockets: Vec<(Vec<IpAddr>, u16)> =
            ids.iter().map(|id| socket(id.transport_port())).collect();
        let clients = clients_of(gateway, self.parents, self.store, self.settings);
        for (id, (addresses, port)) in ids.into_iter().zip(sockets) {
            let frontend = self.frontends.get_mut(&id).expect("just listed");
            // Those of HTTP/3 are the clients of the port of TCP.
            if id.transport == Transport::Tcp || frontend.http3().is_asked() {
                frontend.set_clients(&id, clients.at(id.port), dirty);
            }
            let named = self.settings.named_hosts;
            frontend.set_access_log(&id, access_log.clone(), named, dirty);
            frontend.set_tracing(&id, tracing.clone(), dirty);
            let at = TransportPort {
                number: port,
                transport: id.transport,
            };
            let is_unused = frontend.claims().is_empty() && !frontend.http3().is_asked();
            // QUIC has no PROXY protocol: whoever reaches the port would be believed.
            let is_closed = id.transport == Transport::Udp
                && frontend.claims().is_empty()
                && frontend.clients().proxy_protocol.is_some();
            let wanted = if frontend.is_idle() || is_closed {
                Vec::new()
            } else {
                addresses
            };
            // A frontend for challenges alone yields to any listener, and Services record who has
            // an internal port. In a cluster the shared fleet has addresses of its own; in
            // standalone other Gateways may ask for them as well.
            let is_alone =
                is_shared(&id.gateway) && self.register.recording() == Recording::OtherProcess;
            let is_recorded_elsewhere = is_alone || reserved.contains(&port);
            let claims_socket = !is_unused && !is_recorded_elsewhere;
            let created = if is_unused { FOR_CHALLENGES } else { age };
            let namespace = &id.gateway.namespace;
            let claimant = Claimant {
                created: if self.settings.believes_creation_times {
                    created
                } else {
                    0
                },
                namespace: namespace.clone(),
                through: namespace.clone(),
                by: By::Frontend(id.clone()),
                protocol: Family::Tcp,
            };
            let sockets = wanted
                .iter()
                .filter(|_| claims_socket)
                .map(|ip| Ownable::Socket(*ip, at));
            let claimed: BTreeMap<Ownable, Claimant> =
                sockets.map(|what| (what, claimant.clone())).collect();
            if let Some(before) = frontend.set_claimed(&claimed) {
                for (claims, there) in [(before, false), (claimed, true)] {
                    for (what, claimant) in claims {
                        self.register.claim(&what, &claimant, there);
                        dirty.owned.insert(what);
                    }
                }
            }
            for address in self.frontends.bind(&id, wanted, port, created, dirty) {
                self.service_endpoints
                    .touch_socket(address, self.settings, self.store, dirty);
            }
        }
    }

    /// The tracing of the frontends of a Gateway; `None` for none, and for the shared fleet.
    fn tracing(&self, gateway: &ObjectName) -> Option<&Arc<Tracing>> {
        let parent = self.parents.get(&ParentKey::Gateway(gateway.clone()))?;
        let judged = self.policies.tracing(gateway)?;
        match &judged.effect {
            Effect::Trace { tracing, .. } if parent.allows(judged).is_ok() => tracing.as_ref(),
            _ => None,
        }
    }

    /// The Envoy ports that belong to a Gateway because the Service that was made for it records
    /// them: no more than the quota of its namespace admits.
    ///
    /// Those of a refused Gateway belong to it as well, since its Service still leads there.
    fn recorded_ports(&self, name: &ObjectName) -> BTreeSet<u16> {
        let key = ParentKey::Gateway(name.clone());
        let parent = self.parents.get(&key).filter(|parent| {
            self.quotas.admits_ports_of(&key)
                && (parent.accepted.is_err() || shares_envoys(&parent.placement))
        });
        let (Some(parent), Some(gateway)) = (parent, self.store.gateway(name)) else {
            return BTreeSet::new();
        };
        let mut targets = made_service(gateway, self.store)
            .map(recorded)
            .unwrap_or_default();
        let ports = ports_of(parent, self.frontends);
        targets.retain(|port, _| ports.contains(port));
        targets.into_values().collect()
    }

    /// Determines the Envoy ports of a Gateway that stands on a Service.
    fn request_ports(&mut self, gateway: &ObjectName, dirty: &mut Dirty) {
        let mut asked = BTreeMap::new();
        if let Some(service) = self.parents.service_of(gateway) {
            let used = self
                .frontends
                .of_gateway(gateway)
                .filter(|(_, frontend)| !frontend.is_idle());
            asked.extend(used.filter_map(|(id, _)| {
                Some((id.transport_port(), service.target(id.transport_port())?))
            }));
        }
        for TransportPort { number, transport } in self
            .gateway_services
            .request_ports(gateway, &asked, self.store, dirty)
        {
            // A Gateway that stands on a Service has no Envoys of its own.
            let id = FrontendId {
                gateway: gateway.clone(),
                port: number,
                transport,
                isolated: false,
            };
            self.frontends.touch(&id, dirty);
        }
    }

    /// The sockets of the frontends of a Gateway, or of the shared fleet: the age that decides
    /// between rivals, and a function from the port in the API to addresses and port to bind.
    fn sockets_of(
        &self,
        place: &ObjectName,
    ) -> (i64, impl Fn(TransportPort) -> (Vec<IpAddr>, u16) + use<>) {
        let Self {
            store, settings, ..
        } = *self;
        let gateway = store.gateway(place);
        let created = gateway.map_or(0, |gateway| gateway.meta.created);
        let targets = gateway.and_then(|gateway| self.targets(gateway));
        let everywhere = vec![Ipv4Addr::UNSPECIFIED.into()];
        let reached = match gateway {
            Some(gateway) => addresses(settings, &gateway.addresses),
            // Without default addresses the Service's may be unknown still, and are not those of
            // the Envoys: bind to all.
            None if is_shared(place)
                && settings.default_addresses.is_empty()
                && settings.envoys.is_some() =>
            {
                everywhere.clone()
            }
            None if is_shared(place) => addresses(settings, &[]),
            None => Vec::new(),
        };
        let addresses = listened_on(reached, &settings.bind);
        let everywhere = listened_on(everywhere, &settings.bind);
        let reserved = reserved_ports(settings);
        let shared_service_ports =
            shared_service_ports(store, settings).filter(|_| is_shared(place));
        let socket = move |port: TransportPort| match &targets {
            // No traffic reaches a port that the Service does not have: Envoys do not open it.
            None if shared_service_ports
                .as_ref()
                .is_some_and(|shared_service_ports| !shared_service_ports.contains(&port)) =>
            {
                (Vec::new(), port.number)
            }
            // These ports are reserved for the dedicated fleet, no matter what a listener's status
            // says.
            None if reserved.contains(&port.number) => (Vec::new(), port.number),
            None => (addresses.clone(), port.number),
            Some(targets) => match targets.get(&port) {
                Some(target) => (everywhere.clone(), *target),
                None => (Vec::new(), port.number),
            },
        };
        (created, socket)
    }

    /// The Envoy port for each port of a Gateway of the dedicated fleet, as recorded.
    fn targets(&self, gateway: &Gateway) -> Option<BTreeMap<TransportPort, u16>> {
        let name = &gateway.meta.name;
        let ports = self.gateway_services.ports();
        if let Some(service) = self.parents.service_of(name) {
            let shares = self.gateway_services.port_outcomes(name);
            let mut targets = named_service::recorded(service, name, self.store);
            targets.retain(|port, target| {
                shares.get(port).is_some_and(Result::is_ok)
                    && ports.holder(*target, self.store) == Some(name)
            });
            return Some(targets);
        }
        let fleet = gateway_exposure(gateway, self.store, self.settings)
            .ok()?
            .fleet;
        fleet.has_services().then(|| {
            let mut targets = made_service(gateway, self.store)
                .map(recorded)
                .unwrap_or_default();
            if fleet != Fleet::Isolated {
                targets.retain(|_, target| {
                    ports
                        .holder(*target, self.store)
                        .is_none_or(|other| other == name)
                });
            }
            targets
        })
    }
}

/// The addresses to listen on: those of the settings replace those that are reached.
fn listened_on(reached: Vec<IpAddr>, bind: &[IpAddr]) -> Vec<IpAddr> {
    if bind.is_empty() || reached.is_empty() {
        reached
    } else {
        bind.to_vec()
    }
}

fn shares_envoys(placement: &GatewayPlacement) -> bool {
    placement.exposure.fleet == Fleet::Dedicated && placement.service.is_none()
}

/// The addresses that a Gateway is bound to, sorted.
pub(crate) fn addresses(settings: &Settings, wanted: &[Address]) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = wanted
        .iter()
        .flat_map(|address| match address {
            Address::Ip(ip) => std::slice::from_ref(ip),
            Address::Any => settings.default_addresses.as_slice(),
            Address::Unsupported(_) | Address::Malformed(_) => &[],
        })
        .copied()
        .collect();
    if wanted.is_empty() {
        all.clone_from(&settings.default_addresses);
    }
    all.sort();
    all.dedup();
    all
}
