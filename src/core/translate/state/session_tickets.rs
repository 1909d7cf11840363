//! Session tickets: the shared keys, the hosts that ask for tickets, and those that have them.
//!
//! Envoy makes no tickets where certificates are requested by the SNI, so that such a host has a
//! filter chain of its own, with a secret of regular SDS and ticket keys that no other host has.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::dirty::Dirty;
use gatewright_objects::model::{FrontendId, Hostname, SecretName, TicketKeys, TicketSecret};

/// The shared keys, and the hosts that ask for tickets.
#[derive(Default)]
pub(crate) struct SessionTickets {
    /// The shared keys; `None` until they are known.
    keys: Option<TicketKeys>,
    /// Units of listeners that ask for tickets, and whether these are served.
    asked: BTreeMap<(FrontendId, Hostname), bool>,
}

impl SessionTickets {
    /// Sets the shared keys; marks the hosts that ask for tickets. Returns whether keys are there
    /// now, or not any more.
    pub(crate) fn set_keys(&mut self, keys: Option<TicketKeys>, dirty: &mut Dirty) -> bool {
        if self.keys == keys {
            return false;
        }
        dirty.units.extend(self.asked.keys().cloned());
        std::mem::replace(&mut self.keys, keys).is_some() != self.keys.is_some()
    }

    /// True if the shared keys are known.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// True if the sessions of a host are resumed.
    pub(crate) fn is_served(&self, id: &FrontendId, hostname: &Hostname) -> bool {
        let unit = (id.clone(), hostname.clone());
        self.asked.get(&unit).is_some_and(|is_served| *is_served)
    }

    /// True if the listener of a host asked for tickets when it was last placed.
    pub(crate) fn is_asked(&self, unit: &(FrontendId, Hostname)) -> bool {
        self.asked.contains_key(unit)
    }

    /// Sets whether a host has tickets; `None` for one whose listener does not ask for them.
    pub(crate) fn set(&mut self, unit: (FrontendId, Hostname), is_served: Option<bool>) {
        match is_served {
            Some(is_served) => self.asked.insert(unit, is_served),
            None => self.asked.remove(&unit),
        };
    }

    /// The ticket keys of a host in a namespace.
    pub(crate) fn of_host(&self, name: SecretName, namespace: &Arc<str>) -> Option<TicketSecret> {
        Some(self.keys.as_ref()?.of_host(name, namespace))
    }
}

#[cfg(test)]
mod tests;
