//! Whose the ports of the Envoys are that are kept for Gateways of the dedicated fleet.

use std::collections::BTreeSet;

use super::dirty::Dirty;
use crate::model::ObjectName;
use crate::multimap::MultiMap;
use crate::store::Store;

/// Gateways by the ports of the Envoys that they have, or are to have, for one reason.
#[derive(Default)]
pub(super) struct Holders {
    by_port: MultiMap<u16, ObjectName>,
    by_gateway: MultiMap<ObjectName, u16>,
}

impl Holders {
    /// The Gateways of a port.
    pub(super) fn of(&self, port: u16) -> impl Iterator<Item = &ObjectName> {
        self.by_port.of(&port)
    }

    /// Whether a Gateway has a port.
    pub(super) fn has_any(&self, gateway: &ObjectName) -> bool {
        self.by_gateway.first(gateway).is_some()
    }

    /// Adds or removes a port of a Gateway.
    pub(super) fn set(&mut self, gateway: &ObjectName, port: u16, there: bool) {
        self.by_port.set(&port, gateway, there);
        self.by_gateway.set(gateway, &port, there);
    }

    /// Sets the ports of a Gateway in place of those that it had; says which of them it had or has, and not both.
    pub(super) fn replace(&mut self, gateway: &ObjectName, ports: &BTreeSet<u16>) -> Vec<u16> {
        let held: BTreeSet<u16> = self.by_gateway.of(gateway).copied().collect();
        let changed: Vec<u16> = held.symmetric_difference(ports).copied().collect();
        for port in &changed {
            self.set(gateway, *port, ports.contains(port));
        }
        changed
    }
}

/// Whose they are, by what says so.
#[derive(Default)]
pub(super) struct EnvoyPorts {
    /// As recorded in Services that were made for Gateways.
    pub(super) made: Holders,
    /// As recorded in slices of ours behind Services of somebody's.
    pub(super) lent: Holders,
    /// As the Services of somebody's say on which Gateways stand, at the ports that these use.
    pub(super) asked: Holders,
    /// As chosen for Services that are to be made, or to be changed.
    pub(super) chosen: Holders,
}

impl EnvoyPorts {
    /// The Gateway that has a port in place of one that asks for it, by what its Service says: the first that is recorded to
    /// have it and still stands on a Service, then any to which something leads by it. Where there is none, the older of those
    /// that ask.
    ///
    /// Who stands on a Service of somebody's goes before whose Service we made, since we choose another port for the latter.
    pub(super) fn before<'a>(&'a self, port: u16, gateway: &ObjectName, store: &Store) -> Option<&'a ObjectName> {
        let made = || oldest(self.made.of(port).filter(|other| *other != gateway), store);
        let first = self
            .holder(port, store)
            .or_else(|| oldest(self.lent.of(port), store))
            .or_else(made)
            .or_else(|| oldest(self.asked.of(port), store));
        first.filter(|first| *first != gateway)
    }

    /// The Gateway on a Service of somebody's that has a port: slices of ours lead there, and it asks for that port or for
    /// others still. Whoever can write slices and may not stand on Services takes nobody's port by it.
    pub(super) fn holder(&self, port: u16, store: &Store) -> Option<&ObjectName> {
        oldest(self.lent.of(port).filter(|gateway| self.asked.has_any(gateway)), store)
    }

    /// Whether a port may be chosen for a Gateway.
    pub(super) fn is_free(&self, port: u16, gateway: &ObjectName) -> bool {
        let mut all = self.made.of(port).chain(self.lent.of(port)).chain(self.asked.of(port));
        all.all(|other| other == gateway)
    }

    /// Marks everybody whom a port concerns.
    pub(super) fn touch(&self, port: u16, dirty: &mut Dirty) {
        for holders in [&self.made, &self.lent, &self.asked, &self.chosen] {
            for gateway in holders.of(port) {
                dirty.bindings.insert(gateway.clone());
                dirty.services.insert(gateway.clone());
            }
        }
    }

    /// Marks everybody who has a port that a Gateway has as well, which may be of another age now.
    pub(super) fn touch_rivals(&self, gateway: &ObjectName, dirty: &mut Dirty) {
        for holders in [&self.made, &self.lent, &self.asked] {
            holders.by_gateway.of(gateway).for_each(|port| self.touch(*port, dirty));
        }
    }
}

/// The oldest of Gateways, then the first by name. One that is not there is younger than all that are.
fn oldest<'a>(gateways: impl Iterator<Item = &'a ObjectName>, store: &Store) -> Option<&'a ObjectName> {
    gateways.min_by_key(|name| (store.gateway(name).map_or(i64::MAX, |gateway| gateway.meta.created), *name))
}
