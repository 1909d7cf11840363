//! HTTP/3 of HTTPS listeners: the hosts that ask for it on a port of UDP, and those that have it.
//!
//! The port of UDP beside a port of HTTPS is a frontend by itself, with a filter chain for each
//! host and without claims: a UDP listener on the port has precedence. Routes are those of the
//! frontend of TCP.

use std::collections::{BTreeMap, BTreeSet};

use super::claims::claiming;
use super::dirty::Dirty;
use super::parent::{Parent, ParentListener};
use crate::key::ListenerId;
use crate::rule::host_option::HostOption;
use gatewright_objects::model::{FrontendId, Hostname, Transport, TransportPort, http3_chain};

/// The port of UDP of a listener.
pub(crate) fn udp_port(listener: &ParentListener) -> TransportPort {
    TransportPort {
        number: listener.port,
        transport: Transport::Udp,
    }
}

/// The hosts of a parent with HTTP/3, each with its frontend of UDP and its listener.
pub(crate) fn asked(parent: &Parent) -> BTreeSet<(FrontendId, Hostname, ListenerId)> {
    claiming(parent)
        .filter(|listener| listener.http3 == HostOption::On)
        .map(|listener| {
            (
                parent.frontend(udp_port(listener)),
                listener.hostname.clone(),
                parent.id(listener),
            )
        })
        .collect()
}

/// The hosts of a frontend of UDP.
#[derive(Default)]
pub(crate) struct Http3Hosts {
    /// Hosts that ask for HTTP/3, with their listeners.
    asked: BTreeMap<Hostname, BTreeSet<ListenerId>>,
    /// Those that have a filter chain.
    served: BTreeSet<Hostname>,
}

impl Http3Hosts {
    /// True if a host asks for HTTP/3.
    pub(crate) fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Sets whether a listener asks for its host.
    pub(crate) fn ask(&mut self, hostname: &Hostname, listener: &ListenerId, there: bool) {
        let listeners = self.asked.entry(hostname.clone()).or_default();
        if there {
            listeners.insert(listener.clone());
        } else {
            listeners.remove(listener);
        }
        if listeners.is_empty() {
            self.asked.remove(hostname);
        }
    }

    /// The hosts that ask for HTTP/3, with their listeners.
    pub(crate) fn asked(&self) -> impl Iterator<Item = (&Hostname, &ListenerId)> {
        self.asked
            .iter()
            .flat_map(|(hostname, all)| all.iter().map(move |listener| (hostname, listener)))
    }

    /// The hosts that have a filter chain.
    pub(crate) fn served(&self) -> &BTreeSet<Hostname> {
        &self.served
    }

    /// Sets whether a host has a filter chain; marks its frontend if that changes.
    pub(crate) fn place(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        there: bool,
        dirty: &mut Dirty,
    ) {
        let changed = if there {
            self.served.insert(hostname.clone())
        } else {
            self.served.remove(hostname)
        };
        if changed {
            dirty.frontends.insert(id.clone());
        }
    }

    /// The listeners of a filter chain.
    pub(crate) fn of_chain(&self, chain: &str) -> impl Iterator<Item = &ListenerId> {
        self.asked()
            .filter(move |(hostname, _)| *http3_chain(hostname) == *chain)
            .map(|(_, listener)| listener)
    }
}

#[cfg(test)]
mod tests;
