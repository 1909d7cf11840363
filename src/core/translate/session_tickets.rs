//! Session tickets: the shared keys, the hosts that ask for tickets, and those that have them.
//!
//! Envoy makes no tickets where certificates are requested by the SNI, so that such a host has a
//! filter chain of its own, with a secret of regular SDS and ticket keys that no other host has.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::client_validation::Clients;
use super::compile::Units;
use super::delta::{Resource, ResourceKey};
use super::dirty::Dirty;
use super::host_option::HostOption;
use super::key::ListenerId;
use super::parent::ParentListener;
use super::protocol::Protocol;
use crate::model::{FrontendId, Hostname, SecretName, TicketKeys, TicketSecret};

/// The shared keys, and the hosts that ask for tickets.
#[derive(Default)]
pub(super) struct SessionTickets {
    /// The shared keys; `None` until they are known.
    keys: Option<TicketKeys>,
    /// Units of listeners that ask for tickets, and whether these are served.
    asked: BTreeMap<(FrontendId, Hostname), bool>,
}

impl SessionTickets {
    /// Sets the shared keys; marks the hosts that ask for tickets. Returns whether keys are there
    /// now, or not any more.
    pub(super) fn set_keys(&mut self, keys: Option<TicketKeys>, dirty: &mut Dirty) -> bool {
        if self.keys == keys {
            return false;
        }
        dirty.units.extend(self.asked.keys().cloned());
        std::mem::replace(&mut self.keys, keys).is_some() != self.keys.is_some()
    }

    /// True if the shared keys are known.
    pub(super) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// True if the sessions of a host are resumed.
    pub(super) fn is_served(&self, id: &FrontendId, hostname: &Hostname) -> bool {
        let unit = (id.clone(), hostname.clone());
        self.asked.get(&unit).is_some_and(|is_served| *is_served)
    }

    fn of_host(&self, name: SecretName, namespace: &Arc<str>) -> Option<TicketSecret> {
        Some(self.keys.as_ref()?.of_host(name, namespace))
    }
}

impl Units<'_> {
    /// Places the ticket keys of a host, if its listener asks for tickets and can have them:
    /// without a certificate its chain would keep the Listener waiting. Returns whether it has
    /// them.
    pub(super) fn place_tickets(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        own: Option<(&ListenerId, &ParentListener)>,
        dirty: &mut Dirty,
    ) -> bool {
        let unit = (id.clone(), hostname.clone());
        let own = own.filter(|(_, listener)| {
            listener.tickets == HostOption::On && listener.protocol == Some(Protocol::Https)
        });
        if own.is_none() && !self.tickets.asked.contains_key(&unit) {
            return false;
        }
        let name = SecretName::Tickets(id.clone(), hostname.clone());
        let keys = own
            .filter(|(_, listener)| {
                listener.served.certificate().is_some() && listener.clients == Clients::Anybody
            })
            .and_then(|(listener, _)| {
                let namespace = &listener.parent.name().namespace;
                self.tickets.of_host(name.clone(), namespace)
            });
        let is_served = keys.is_some();
        if own.is_some() {
            self.tickets.asked.insert(unit, is_served);
        } else {
            self.tickets.asked.remove(&unit);
        }
        self.emissions.emit(
            ResourceKey::Secret(name),
            keys.map(Resource::Tickets),
            dirty,
        );
        is_served
    }
}

#[cfg(test)]
mod tests;
