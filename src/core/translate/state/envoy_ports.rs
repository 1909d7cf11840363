//! The Gateways that have the Envoy ports which are reserved for the dedicated fleet.

use std::collections::BTreeSet;

use super::dirty::Dirty;
use gatewright_objects::model::ObjectName;
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::store::Store;

/// Gateways by the Envoy ports that they have, or are to have, on one ground.
#[derive(Default)]
pub(crate) struct Holders {
    by_port: MultiMap<u16, ObjectName>,
    by_gateway: MultiMap<ObjectName, u16>,
}

impl Holders {
    /// The Gateways with a port.
    pub(crate) fn of(&self, port: u16) -> impl Iterator<Item = &ObjectName> {
        self.by_port.of(&port)
    }

    /// True if a Gateway has any port.
    pub(crate) fn has_any(&self, gateway: &ObjectName) -> bool {
        self.by_gateway.first(gateway).is_some()
    }

    /// Replaces the ports of a Gateway. Returns the ports that were added or removed, and which of
    /// both.
    pub(crate) fn replace(
        &mut self,
        gateway: &ObjectName,
        ports: &BTreeSet<u16>,
    ) -> Vec<(u16, Moved)> {
        let held: BTreeSet<u16> = self.by_gateway.of(gateway).copied().collect();
        let changed: Vec<u16> = held.symmetric_difference(ports).copied().collect();
        let moved = |port| {
            if ports.contains(&port) {
                Moved::Taken
            } else {
                Moved::Freed
            }
        };
        let changed: Vec<(u16, Moved)> = changed
            .into_iter()
            .map(|port| (port, moved(port)))
            .collect();
        for (port, moved) in &changed {
            self.by_port.set(port, gateway, *moved == Moved::Taken);
            self.by_gateway.set(gateway, port, *moved == Moved::Taken);
        }
        changed
    }
}

/// The change of a port of a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// The Gateway has it now.
    Taken,
    /// The Gateway does not have it any more.
    Freed,
}

/// The Gateways with Envoy ports, by ground.
#[derive(Default)]
pub(crate) struct EnvoyPorts {
    /// As recorded in Services that were made for Gateways, for ports that these Gateways have.
    pub(crate) made: Holders,
    /// As written in Services, by their names, that look as if they were made for Gateways. Anybody
    /// who may write Services can write such a one: others get these ports last, but no Gateway
    /// loses a port to them.
    pub(crate) written: Holders,
    /// As recorded in lent slices.
    pub(crate) lent: Holders,
    /// As the Services that Gateways stand on specify, for the ports that these use.
    pub(crate) asked: Holders,
    /// As chosen for Services that are to be created or updated.
    pub(crate) chosen: Holders,
    /// The Gateways with a port for which no Envoy port is recorded.
    choosing: BTreeSet<ObjectName>,
}

impl EnvoyPorts {
    /// Returns the Gateway that has precedence at a port over one whose Service specifies it: the
    /// first that is recorded to have the port and still stands on a Service, then any with a
    /// recorded port. Without one, the oldest of those that request it.
    ///
    /// A Gateway that stands on a Service precedes one whose Service we made, since we can choose
    /// another port for the latter.
    pub(crate) fn before<'a>(
        &'a self,
        port: u16,
        gateway: &ObjectName,
        store: &Store,
    ) -> Option<&'a ObjectName> {
        let first = self
            .holder(port, store)
            .or_else(|| oldest(self.lent.of(port), store))
            .or_else(|| oldest(self.made.of(port).filter(|other| *other != gateway), store))
            .or_else(|| oldest(self.asked.of(port), store));
        first.filter(|first| *first != gateway)
    }

    /// Returns the Gateway on a named Service that has a port: a lent slice records it, and the
    /// Gateway requests this port or others. A tenant who can write slices but may not stand on
    /// Services takes no port by writing them.
    pub(crate) fn holder(&self, port: u16, store: &Store) -> Option<&ObjectName> {
        oldest(
            self.lent
                .of(port)
                .filter(|gateway| self.asked.has_any(gateway)),
            store,
        )
    }

    /// True if a port may be chosen for a Gateway.
    pub(crate) fn is_free(&self, port: u16, gateway: &ObjectName, store: &Store) -> bool {
        let mut all = self
            .made
            .of(port)
            .chain(self.holder(port, store))
            .chain(self.asked.of(port));
        all.all(|other| other == gateway)
    }

    /// True if neither a Service, except for the one that is made for a Gateway, nor a lent slice
    /// of another Gateway has a port, whoever wrote them: they may still lead clients there.
    pub(crate) fn is_unwritten(
        &self,
        port: u16,
        gateway: &ObjectName,
        service: &ObjectName,
    ) -> bool {
        self.written.of(port).all(|other| other == service)
            && self.lent.of(port).all(|other| other == gateway)
    }

    /// Sets whether a Gateway has a port for which no Envoy port is recorded.
    pub(crate) fn set_choosing(&mut self, gateway: &ObjectName, is_choosing: bool) {
        if is_choosing {
            self.choosing.insert(gateway.clone())
        } else {
            self.choosing.remove(gateway)
        };
    }

    /// Marks the Gateways with ports that were taken or freed. If one was freed, those without a
    /// recorded port choose again.
    pub(crate) fn touch_moved(&self, moved: &[(u16, Moved)], dirty: &mut Dirty) {
        for (port, _) in moved {
            self.touch(*port, dirty);
        }
        if moved.iter().any(|(_, moved)| *moved == Moved::Freed) {
            self.touch_choosing(dirty);
        }
    }

    /// Marks the Gateways with a port for which no Envoy port is recorded.
    pub(crate) fn touch_choosing(&self, dirty: &mut Dirty) {
        dirty.services.extend(self.choosing.iter().cloned());
    }

    /// Marks all Gateways with a port.
    fn touch(&self, port: u16, dirty: &mut Dirty) {
        for holders in [&self.made, &self.lent, &self.asked, &self.chosen] {
            for gateway in holders.of(port) {
                dirty.bindings.insert(gateway.clone());
                dirty.services.insert(gateway.clone());
            }
        }
    }

    /// Marks the Gateways that share a port with a Gateway, whose age may have changed.
    pub(crate) fn touch_rivals(&self, gateway: &ObjectName, dirty: &mut Dirty) {
        for holders in [&self.made, &self.lent, &self.asked] {
            holders
                .by_gateway
                .of(gateway)
                .for_each(|port| self.touch(*port, dirty));
        }
    }
}

/// Returns the oldest Gateway, of several the first by name. Deleted ones count as younger than all
/// others.
fn oldest<'a>(
    gateways: impl Iterator<Item = &'a ObjectName>,
    store: &Store,
) -> Option<&'a ObjectName> {
    gateways.min_by_key(|name| {
        (
            store
                .gateway(name)
                .map_or(i64::MAX, |gateway| gateway.meta.created),
            *name,
        )
    })
}

#[cfg(test)]
mod tests;
