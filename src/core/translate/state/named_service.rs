//! Gateways of the dedicated fleet that stand on a Service which they name, instead of one that is
//! made for them.
//!
//! The port of a listener is the Service's port, and Envoys listen for the Gateway on its
//! `targetPort`. Nothing is inferred from selectors of pods: the Gateway's parameters name the
//! Service, and lent slices put the Envoys behind it, with the ports of this Gateway alone. These
//! slices are also the record of the ports: as with a Service that we made, a port is bound only
//! after the watch has returned them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::gateway_services::Refusal;
use crate::key::Verdict;
use crate::rule::dedicated_envoys;
use crate::rule::internal_ports::INTERNAL;
use crate::rule::settings::Settings;
use gatewright_objects::inputs::{Address, Gateway, Service, ServicePortSpec, TargetPort};
use gatewright_objects::model::{GatewayAddress, ObjectName, Reason, TransportPort};
use gatewright_objects::store::Store;

/// The named Service that a Gateway stands on.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedService {
    /// Its name.
    pub name: ObjectName,
    /// Its ports; empty if a Gateway cannot stand on it.
    pub ports: BTreeMap<TransportPort, NamedPort>,
    /// True if a `targetPort` is a name: the Service of the Envoys then determines the number.
    pub has_names: bool,
}

/// A port of a named Service.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedPort {
    /// Its name.
    pub name: Arc<str>,
    /// The Envoy port, or why there is none.
    pub target: Result<u16, String>,
}

/// Looks up the Service by name, in the namespace of a Gateway that is to stand on it, and returns
/// why it cannot.
pub(crate) fn named_service(
    name: &Arc<str>,
    gateway: &Gateway,
    store: &Store,
    settings: &Settings,
) -> (NamedService, Option<(Reason, String)>) {
    let name = ObjectName::new(gateway.meta.name.namespace.clone(), name.clone());
    let Some(service) = store.service(&name) else {
        let text = format!(
            "Service {name} is not there: create it, without a selector, or name another one"
        );
        return (nothing(name), Some((Reason::AddressNotAssigned, text)));
    };
    if let Some(text) = unfit(service, settings) {
        return (nothing(name), Some((Reason::AddressNotUsable, text)));
    }
    let ports = service.ports.iter().map(|port| {
        let at = TransportPort {
            number: port.port,
            transport: port.transport,
        };
        (
            at,
            NamedPort {
                name: port.name.clone(),
                target: target(service, port, store, settings),
            },
        )
    });
    let has_names = service
        .ports
        .iter()
        .any(|port| matches!(port.target, TargetPort::Name(_)));
    let wrong = unlike(service, gateway).map(|text| (Reason::AddressNotUsable, text));
    (
        NamedService {
            name,
            ports: ports.collect(),
            has_names,
        },
        wrong,
    )
}

fn nothing(name: ObjectName) -> NamedService {
    NamedService {
        name,
        ports: BTreeMap::new(),
        has_names: false,
    }
}

/// Why no Gateway can stand on a Service.
fn unfit(service: &Service, settings: &Settings) -> Option<String> {
    let name = &service.meta.name;
    if let Some(made) = &service.made {
        return Some(format!(
            "Service {name} is the one that was made for Gateway {}: name another one",
            made.gateway
        ));
    }
    if [settings.envoys.as_ref(), settings.dedicated.service()].contains(&Some(name)) {
        return Some(format!(
            "Service {name} leads to all Envoys of a fleet: name another one"
        ));
    }
    if service.external_name.is_some() {
        return Some(format!(
            "Service {name} is of type ExternalName, by which no Envoy is reached: make it LoadBalancer, NodePort or ClusterIP"
        ));
    }
    if service.headless {
        return Some(format!(
            "Service {name} is headless (clusterIP: None), so that clients would come to Envoys at ports of listeners: make one \
             with an address"
        ));
    }
    service.selects.then(|| {
        format!(
            "Service {name} has a selector, by which Kubernetes leads it to pods of this namespace: remove spec.selector, and \
             EndpointSlices lead it to Envoys"
        )
    })
}

/// The error in the addresses that a Gateway requests, if any: it is served on all of the
/// Service's, and on no other.
fn unlike(service: &Service, gateway: &Gateway) -> Option<String> {
    let asked: BTreeSet<GatewayAddress> = gateway
        .addresses
        .iter()
        .filter_map(Address::ip)
        .copied()
        .map(GatewayAddress::Ip)
        .collect();
    let all: BTreeSet<GatewayAddress> = service.reached.iter().cloned().collect();
    if asked.is_empty() || asked == all {
        return None;
    }
    let name = &service.meta.name;
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    Some(if all.is_empty() {
        format!("spec.addresses: Service {name} has no address yet: name none")
    } else {
        format!(
            "spec.addresses: Service {name} is reached at {}: name that, or none",
            all.join(" and ")
        )
    })
}

/// The Envoy port that a port of a Service leads to.
fn target(
    service: &Service,
    port: &ServicePortSpec,
    store: &Store,
    settings: &Settings,
) -> Result<u16, String> {
    let at = TransportPort {
        number: port.port,
        transport: port.transport,
    };
    let this = format!("port {at} of Service {} has targetPort", service.meta.name);
    let first = INTERNAL.start;
    let last = INTERNAL.end - 1;
    let number = match &port.target {
        TargetPort::Number(number) => *number,
        TargetPort::Name(name) => {
            let Some(fleet) = dedicated_envoys::service(settings) else {
                return Err(format!(
                    "{this} {name:?}, and no Service has Envoys behind it: use a number"
                ));
            };
            let ports = store.slices(fleet).flat_map(|slice| slice.ports.iter());
            let meant = ports.filter(|(other, at)| other == name && at.transport == port.transport);
            let meant: BTreeSet<u16> = meant.map(|(_, at)| at.number).collect();
            let mut all = meant.iter();
            match (all.next(), all.next()) {
                (Some(number), None) => *number,
                (None, _) => {
                    return Err(format!(
                        "{this} {name:?}, and Service {fleet}, which has the Envoys behind it, leads to no port of this name: \
                         use a number from {first} to {last}"
                    ));
                }
                (Some(one), Some(other)) => {
                    return Err(format!(
                        "{this} {name:?}, which is {one} and {other} behind Service {fleet}: use a number from {first} to {last}"
                    ));
                }
            }
        }
    };
    if INTERNAL.contains(&number) {
        Ok(number)
    } else {
        Err(format!(
            "{this} {number}, where Envoys may listen for others: use a number from {first} to {last}, which are kept for \
             Gateways of fleet Dedicated"
        ))
    }
}

impl NamedService {
    /// Checks whether the Service permits a port of a listener.
    pub(crate) fn check(&self, at: TransportPort) -> Verdict {
        match self.ports.get(&at).map(|port| &port.target) {
            Some(Ok(_)) => Ok(()),
            Some(Err(text)) => unavailable(text.clone()),
            None => {
                let has: Vec<String> = self.ports.keys().map(ToString::to_string).collect();
                let has = if has.is_empty() {
                    "none".to_owned()
                } else {
                    has.join(", ")
                };
                unavailable(format!(
                    "Service {} has no port {at}: add it, or use one that it has ({has})",
                    self.name
                ))
            }
        }
    }

    /// The Envoy port of a port.
    pub(crate) fn target(&self, at: TransportPort) -> Option<u16> {
        self.ports.get(&at)?.target.as_ref().ok().copied()
    }
}

fn unavailable(text: String) -> Result<(), (Reason, String)> {
    Err((Reason::PortUnavailable, text))
}

/// The Envoy ports that lent slices record for the ports of a Gateway's Service.
pub(crate) fn recorded(
    service: &NamedService,
    gateway: &ObjectName,
    store: &Store,
) -> BTreeMap<TransportPort, u16> {
    let slices = store.slices(&service.name).filter(|slice| {
        slice.made.as_deref().is_some_and(|made| {
            made.lent
                .as_ref()
                .is_some_and(|lent| lent.gateway == *gateway)
        })
    });
    let mut targets = BTreeMap::new();
    for (name, at) in slices
        .flat_map(|slice| slice.ports.iter())
        .filter(|(_, at)| INTERNAL.contains(&at.number))
    {
        let leads = |(port, named): &(&TransportPort, &NamedPort)| {
            named.name == *name && port.transport == at.transport
        };
        if let Some((port, _)) = service.ports.iter().find(leads) {
            targets.entry(*port).or_insert(at.number);
        }
    }
    targets
}

/// The message why a listener does not get its port. It does not name a Gateway of another
/// namespace.
pub(crate) fn refused(service: &ObjectName, port: TransportPort, refusal: &Refusal) -> String {
    match refusal {
        Refusal::Gateway(target, other) => {
            let other = if other.namespace == service.namespace {
                format!("Gateway {other} has")
            } else {
                "a Gateway of another namespace has".to_owned()
            };
            format!(
                "port {port} of Service {service} leads to port {target} of Envoys, which {other}: give it another targetPort, or \
                 take another port"
            )
        }
        Refusal::Port(target, other) => format!(
            "port {port} of Service {service} leads to port {target} of Envoys, as port {other} does, at which this Gateway has \
             listeners: give it another targetPort"
        ),
    }
}

#[cfg(test)]
mod tests;
