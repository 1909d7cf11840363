//! The Services of Gateways of the dedicated fleet: the intents for them and for their endpoints,
//! and the Envoy ports that existing ones record.

use std::collections::{BTreeMap, BTreeSet};

use super::dirty::Dirty;
use super::envoy_ports::EnvoyPorts;
use super::isolated_envoys::DesiredEnvoys;
use super::service_intent::ServiceIntent;
use crate::key::ParentKey;
use crate::rule::internal_ports::recorded;
use gatewright_objects::inputs::{MadeService, MadeSlice};
use gatewright_objects::model::{ObjectName, TransportPort};
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::store::Store;

/// Why a Gateway does not have the Envoy port that a port of its Service leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another Gateway has it.
    Gateway(u16, ObjectName),
    /// Another port of the Service leads to it as well, at which the Gateway has listeners.
    Port(u16, TransportPort),
}

/// The Envoy ports of a Gateway that stands on a Service, by its own ports.
pub(crate) type PortOutcomes = BTreeMap<TransportPort, Result<u16, Refusal>>;

/// The Services of Gateways.
#[derive(Default)]
pub(crate) struct GatewayServices {
    intents: BTreeMap<ObjectName, ServiceIntent>,
    /// Gateways by the Services that they are to have, or stand on.
    by_service: MultiMap<ObjectName, ObjectName>,
    /// The Gateways with Envoy ports.
    ports: EnvoyPorts,
    /// The ports of Gateways for which no Envoy port is free.
    without_ports: BTreeMap<ObjectName, BTreeSet<TransportPort>>,
    /// Lent slices, by Gateway.
    slices: MultiMap<ObjectName, ObjectName>,
    /// The Envoy ports of Gateways that stand on a Service.
    port_outcomes: BTreeMap<ObjectName, PortOutcomes>,
    /// Why Services cannot be created or updated, by Gateway.
    failures: BTreeMap<ObjectName, String>,
    /// The Envoys of fleet Isolated, by Gateway; and the Gateways by the Services of these Envoys.
    envoys: BTreeMap<ObjectName, DesiredEnvoys>,
    by_envoys: BTreeMap<ObjectName, ObjectName>,
    /// Why these Envoys cannot be created or updated, by Gateway.
    envoys_problems: BTreeMap<ObjectName, String>,
}

impl GatewayServices {
    /// The intents for the Services of Gateways.
    pub(crate) fn intents(&self) -> &BTreeMap<ObjectName, ServiceIntent> {
        &self.intents
    }

    /// Sets the intent for a Gateway's Service. Returns whether it changed.
    pub(crate) fn set_intent(
        &mut self,
        gateway: &ObjectName,
        intent: Option<ServiceIntent>,
    ) -> bool {
        let old = self.intents.get(gateway);
        if old == intent.as_ref() {
            return false;
        }
        for (intent, there) in [(old, false), (intent.as_ref(), true)] {
            if let Some(service) = intent.and_then(ServiceIntent::name) {
                self.by_service.set(service, gateway, there);
            }
        }
        let chosen = match &intent {
            Some(ServiceIntent::Wanted(desired)) => desired.targets.values().copied().collect(),
            Some(ServiceIntent::Slices(_) | ServiceIntent::Left) | None => BTreeSet::new(),
        };
        self.ports.chosen.replace(gateway, &chosen);
        match intent {
            Some(intent) => self.intents.insert(gateway.clone(), intent),
            None => self.intents.remove(gateway),
        };
        true
    }

    /// The Gateways with Envoy ports.
    pub(crate) fn ports(&self) -> &EnvoyPorts {
        &self.ports
    }

    /// The Envoy ports of a Gateway that stands on a Service; empty for any other Gateway.
    pub(crate) fn port_outcomes(&self, gateway: &ObjectName) -> &PortOutcomes {
        static NOTHING: PortOutcomes = PortOutcomes::new();
        self.port_outcomes.get(gateway).unwrap_or(&NOTHING)
    }

    /// Sets the Envoy ports that the Service made for a Gateway records for ports of this Gateway.
    pub(crate) fn record_ports(
        &mut self,
        gateway: &ObjectName,
        targets: &BTreeSet<u16>,
        dirty: &mut Dirty,
    ) {
        let moved = self.ports.made.replace(gateway, targets);
        self.ports.touch_moved(&moved, dirty);
    }

    /// Sets whether a Gateway has ports for which no Envoy port is recorded, and those for which
    /// none is free.
    pub(crate) fn set_choice(
        &mut self,
        gateway: &ObjectName,
        is_choosing: bool,
        without: BTreeSet<TransportPort>,
        store: &Store,
        dirty: &mut Dirty,
    ) {
        self.ports.set_choosing(gateway, is_choosing);
        let before = if without.is_empty() {
            self.without_ports.remove(gateway)
        } else {
            self.without_ports.insert(gateway.clone(), without)
        };
        if before.as_ref() != self.without_ports.get(gateway) {
            let sets = store
                .indexes()
                .sets_by_gateway(gateway)
                .cloned()
                .map(ParentKey::ListenerSet);
            let parents = std::iter::once(ParentKey::Gateway(gateway.clone())).chain(sets);
            dirty.statuses.extend(parents.map(|parent| parent.object()));
        }
    }

    /// True if no Envoy port is free for a port of a Gateway.
    pub(crate) fn lacks(&self, gateway: &ObjectName, port: TransportPort) -> bool {
        self.without_ports
            .get(gateway)
            .is_some_and(|ports| ports.contains(&port))
    }

    /// Sets the Envoy ports that a Gateway requests by the Service it stands on, by its own ports.
    /// Returns the ports whose outcome changed.
    pub(crate) fn request_ports(
        &mut self,
        gateway: &ObjectName,
        asked: &BTreeMap<TransportPort, u16>,
        store: &Store,
        dirty: &mut Dirty,
    ) -> Vec<TransportPort> {
        let stood = self.ports.asked.has_any(gateway);
        let moved = self
            .ports
            .asked
            .replace(gateway, &asked.values().copied().collect());
        self.ports.touch_moved(&moved, dirty);
        if stood != self.ports.asked.has_any(gateway) {
            self.ports.touch_rivals(gateway, dirty);
            self.ports.touch_choosing(dirty);
        }
        let mut port_outcomes = PortOutcomes::new();
        for (port, target) in asked {
            let first = asked
                .keys()
                .find(|other| other.transport == port.transport && asked[other] == *target)
                .filter(|first| *first != port);
            let outcome = match (first, self.ports.before(*target, gateway, store)) {
                (Some(first), _) => Err(Refusal::Port(*target, *first)),
                (None, Some(other)) => Err(Refusal::Gateway(*target, other.clone())),
                (None, None) => Ok(*target),
            };
            port_outcomes.insert(*port, outcome);
        }
        let before = if port_outcomes.is_empty() {
            self.port_outcomes.remove(gateway)
        } else {
            self.port_outcomes.insert(gateway.clone(), port_outcomes)
        };
        let (before, after) = (before.unwrap_or_default(), self.port_outcomes(gateway));
        let ports: BTreeSet<TransportPort> = before.keys().chain(after.keys()).copied().collect();
        ports
            .into_iter()
            .filter(|port| before.get(port) != after.get(port))
            .collect()
    }

    /// Sets a Gateway's own Envoys. Returns whether they changed.
    pub(crate) fn set_envoys(
        &mut self,
        gateway: &ObjectName,
        desired: Option<DesiredEnvoys>,
    ) -> bool {
        if self.envoys.get(gateway) == desired.as_ref() {
            return false;
        }
        // Their name depends on the Gateway's alone, so they have the same Service as long as they
        // exist.
        match desired {
            Some(desired) => {
                self.by_envoys.insert(desired.name.clone(), gateway.clone());
                self.envoys.insert(gateway.clone(), desired);
            }
            None => {
                if let Some(before) = self.envoys.remove(gateway) {
                    self.by_envoys.remove(&before.name);
                }
            }
        }
        true
    }

    /// The Envoys of fleet Isolated, by Gateway.
    pub(crate) fn envoys(&self) -> &BTreeMap<ObjectName, DesiredEnvoys> {
        &self.envoys
    }

    /// The Gateway whose own Envoys are behind a Service.
    pub(crate) fn gateway_behind(&self, service: &ObjectName) -> Option<&ObjectName> {
        self.by_envoys.get(service)
    }

    /// Why a Gateway's Envoys or its Service cannot be created or updated: without Envoys a Service
    /// has no endpoints.
    pub(crate) fn failure(&self, gateway: &ObjectName) -> Option<&str> {
        self.envoys_problems
            .get(gateway)
            .or_else(|| self.failures.get(gateway))
            .map(String::as_str)
    }

    /// Sets why a Gateway's own Envoys cannot be created or updated.
    pub(crate) fn set_envoys_problem(
        &mut self,
        gateway: ObjectName,
        text: Option<String>,
        dirty: &mut Dirty,
    ) {
        dirty
            .statuses
            .insert(ParentKey::Gateway(gateway.clone()).object());
        match text {
            Some(text) => self.envoys_problems.insert(gateway, text),
            None => self.envoys_problems.remove(&gateway),
        };
    }

    /// Sets why a Gateway's Service cannot be created or updated.
    pub(crate) fn set_failure(
        &mut self,
        gateway: ObjectName,
        text: Option<String>,
        dirty: &mut Dirty,
    ) {
        dirty
            .statuses
            .insert(ParentKey::Gateway(gateway.clone()).object());
        match text {
            Some(text) => self.failures.insert(gateway, text),
            None => self.failures.remove(&gateway),
        };
    }

    /// Applies a change of a Service that leads to a Gateway: `old` is the former one.
    pub(crate) fn take_service(
        &mut self,
        name: &ObjectName,
        old: Option<&MadeService>,
        store: &Store,
        dirty: &mut Dirty,
    ) {
        let new = store.service(name).and_then(|service| service.made.clone());
        let written = new.as_deref().map(recorded).unwrap_or_default();
        let moved = self
            .ports
            .written
            .replace(name, &written.values().copied().collect());
        self.ports.touch_moved(&moved, dirty);
        let mut gateways: BTreeSet<ObjectName> = old
            .into_iter()
            .chain(new.as_deref())
            .map(|e| e.gateway.clone())
            .collect();
        // Another object may have the name of the Service.
        gateways.extend(self.by_service.of(name).cloned());
        for gateway in gateways {
            touch(gateway, dirty);
        }
    }

    /// Applies a change of a slice: `old` is the former one.
    pub(crate) fn take_slice(
        &mut self,
        name: &ObjectName,
        old: Option<&MadeSlice>,
        store: &Store,
        dirty: &mut Dirty,
    ) {
        let new = store.slice(name).and_then(|slice| slice.made.as_deref());
        fn gateway(made: Option<&MadeSlice>) -> Option<ObjectName> {
            Some(made?.lent.as_ref()?.gateway.clone())
        }
        for (gateway, there) in [(gateway(old), false), (gateway(new), true)] {
            let Some(gateway) = gateway else { continue };
            self.slices.set(&gateway, name, there);
            let slices = self
                .slices
                .of(&gateway)
                .filter_map(|name| store.slice(name));
            let targets = slices
                .flat_map(|slice| slice.ports.iter().map(|(_, at)| at.number))
                .collect();
            let moved = self.ports.lent.replace(&gateway, &targets);
            self.ports.touch_moved(&moved, dirty);
            touch(gateway, dirty);
        }
    }

    /// Marks what depends on the age of a changed Gateway: the Gateways that have an Envoy port in
    /// common with it.
    pub(crate) fn touch_rivals(&self, name: &ObjectName, dirty: &mut Dirty) {
        dirty.services.insert(name.clone());
        self.ports.touch_rivals(name, dirty);
    }

    /// Marks all Services, after a change of the Envoys.
    pub(crate) fn touch_all(&self, dirty: &mut Dirty) {
        dirty.services.extend(self.intents.keys().cloned());
    }
}

fn touch(gateway: ObjectName, dirty: &mut Dirty) {
    dirty.bindings.insert(gateway.clone());
    dirty
        .statuses
        .insert(ParentKey::Gateway(gateway.clone()).object());
    dirty.services.insert(gateway);
}
