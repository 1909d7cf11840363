//! The Services of Gateways of the dedicated fleet: which are to be there, and which ports of the Envoys are recorded in
//! those that are.

use std::collections::{BTreeMap, BTreeSet};

use super::dirty::Dirty;
use super::internal_ports::recorded;
use super::isolated_envoys::EnvoysIntent;
use super::key::ParentKey;
use super::service_intent::ServiceIntent;
use crate::inputs::Exposure;
use crate::model::ObjectName;
use crate::multimap::MultiMap;
use crate::store::Store;

/// The Services of Gateways.
#[derive(Default)]
pub(super) struct Exposures {
    intents: BTreeMap<ObjectName, ServiceIntent>,
    /// Which Gateways have a port of the Envoys, as recorded in their Services, and the same the other way round.
    takers: MultiMap<u16, ObjectName>,
    takes: MultiMap<ObjectName, u16>,
    /// Why Services cannot be made or changed as they are to be, by Gateway.
    failures: BTreeMap<ObjectName, String>,
    /// The Envoys that Gateways are to have for themselves, and whose those behind a Service are.
    envoys: BTreeMap<ObjectName, EnvoysIntent>,
    behind: BTreeMap<ObjectName, ObjectName>,
    /// Why those cannot be made or changed as they are to be, by Gateway.
    undeployed: BTreeMap<ObjectName, String>,
}

impl Exposures {
    /// The Services that Gateways are to have.
    pub(super) fn intents(&self) -> &BTreeMap<ObjectName, ServiceIntent> {
        &self.intents
    }

    /// Sets which Service a Gateway is to have. Whether that is different from before.
    pub(super) fn set_intent(&mut self, gateway: &ObjectName, intent: Option<ServiceIntent>) -> bool {
        if self.intents.get(gateway) == intent.as_ref() {
            return false;
        }
        match intent {
            Some(intent) => self.intents.insert(gateway.clone(), intent),
            None => self.intents.remove(gateway),
        };
        true
    }

    /// The Gateways whose Services record a port of the Envoys.
    pub(super) fn takers(&self, target: u16) -> impl Iterator<Item = &ObjectName> {
        self.takers.of(&target)
    }

    /// Sets which Envoys a Gateway is to have for itself. Whether that is different from before.
    pub(super) fn set_envoys(&mut self, gateway: &ObjectName, intent: Option<EnvoysIntent>) -> bool {
        if self.envoys.get(gateway) == intent.as_ref() {
            return false;
        }
        let before = match intent {
            Some(intent) => {
                if let EnvoysIntent::Wanted(desired) = &intent {
                    self.behind.insert(desired.name.clone(), gateway.clone());
                }
                self.envoys.insert(gateway.clone(), intent)
            }
            None => self.envoys.remove(gateway),
        };
        // They are called as their Gateway is, so that it is the same Service for as long as there are any.
        if let (Some(EnvoysIntent::Wanted(desired)), false) = (&before, self.wants_envoys(gateway)) {
            self.behind.remove(&desired.name);
        }
        true
    }

    fn wants_envoys(&self, gateway: &ObjectName) -> bool {
        matches!(self.envoys.get(gateway), Some(EnvoysIntent::Wanted(_)))
    }

    /// The Envoys that Gateways are to have for themselves.
    pub(super) fn envoys(&self) -> &BTreeMap<ObjectName, EnvoysIntent> {
        &self.envoys
    }

    /// The Gateway whose own Envoys are behind a Service.
    pub(super) fn behind(&self, service: &ObjectName) -> Option<&ObjectName> {
        self.behind.get(service)
    }

    /// Why a Gateway's Envoys or its Service cannot be as they are to be: without the former nobody is behind the latter.
    pub(super) fn failure(&self, gateway: &ObjectName) -> Option<&str> {
        self.undeployed.get(gateway).or_else(|| self.failures.get(gateway)).map(String::as_str)
    }

    /// Sets why the Envoys of a Gateway's own cannot be as they are to be.
    pub(super) fn set_undeployed(&mut self, gateway: ObjectName, text: Option<String>, dirty: &mut Dirty) {
        dirty.statuses.insert(ParentKey::Gateway(gateway.clone()).object());
        match text {
            Some(text) => self.undeployed.insert(gateway, text),
            None => self.undeployed.remove(&gateway),
        };
    }

    /// Sets why a Gateway's Service cannot be as it is to be.
    pub(super) fn set_failure(&mut self, gateway: ObjectName, text: Option<String>, dirty: &mut Dirty) {
        dirty.statuses.insert(ParentKey::Gateway(gateway.clone()).object());
        match text {
            Some(text) => self.failures.insert(gateway, text),
            None => self.failures.remove(&gateway),
        };
    }

    /// Takes in a Service that leads to a Gateway and came, went or changed: `old` is what it was.
    pub(super) fn take_service(&mut self, name: &ObjectName, old: Option<&Exposure>, store: &Store, dirty: &mut Dirty) {
        let new = store.service(name).and_then(|service| service.exposure.clone());
        for (exposure, there) in [(old, false), (new.as_deref(), true)] {
            let Some(exposure) = exposure else { continue };
            for target in recorded(exposure).values() {
                self.takers.set(target, &exposure.gateway, there);
                self.takes.set(&exposure.gateway, target, there);
                dirty.services.extend(self.takers.of(target).cloned());
            }
            dirty.services.insert(exposure.gateway.clone());
        }
        let mut gateways: BTreeSet<ObjectName> =
            old.into_iter().chain(new.as_deref()).map(|e| e.gateway.clone()).collect();
        // Somebody else's may stand in the way.
        let intents = self.intents.iter().filter(|(_, intent)| intent.name() == Some(name));
        gateways.extend(intents.map(|(gateway, _)| gateway.clone()));
        for gateway in gateways {
            dirty.bindings.insert(gateway.clone());
            dirty.statuses.insert(ParentKey::Gateway(gateway.clone()).object());
            dirty.services.insert(gateway);
        }
    }

    /// A Gateway came, went or changed: with its age those change who have a port of the Envoys that it has as well.
    pub(super) fn touch_rivals(&self, name: &ObjectName, dirty: &mut Dirty) {
        dirty.services.insert(name.clone());
        // Those recorded of it count, also where it is of another class now, or gone.
        for target in self.takes.of(name) {
            dirty.services.extend(self.takers.of(target).cloned());
        }
    }

    /// The Envoys came or went: marks all Services.
    pub(super) fn touch_all(&self, dirty: &mut Dirty) {
        dirty.services.extend(self.intents.keys().cloned());
    }
}
