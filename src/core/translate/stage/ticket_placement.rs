//! The placement of ticket keys: the hosts whose sessions are resumed.

use super::compile::Units;
use crate::delta::{Resource, ResourceKey};
use crate::key::ListenerId;
use crate::rule::client_validation::Clients;
use crate::rule::host_option::HostOption;
use crate::rule::protocol::Protocol;
use crate::state::dirty::Dirty;
use crate::state::parent::ParentListener;
use gatewright_objects::model::{FrontendId, Hostname, SecretName};

impl Units<'_> {
    /// Places the ticket keys of a host, if its listener asks for tickets and can have them:
    /// without a certificate its chain would keep the Listener waiting. Returns whether it has
    /// them.
    pub(crate) fn place_tickets(
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
        if own.is_none() && !self.tickets.is_asked(&unit) {
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
        self.tickets.set(unit, own.map(|_| is_served));
        self.emissions.emit(
            ResourceKey::Secret(name),
            keys.map(Resource::Tickets),
            dirty,
        );
        is_served
    }
}
