//! Texts of conflicts between listeners.

use super::{FrontendId, Report};
use crate::rule::gateway_exposure;
use crate::rule::protocol::Protocol;
use crate::state::parent::{Parent, ParentListener};
use gatewright_objects::model::{Family, Reason};

impl Report<'_> {
    /// The message why a listener does not get its hostname. It contains only the reader's own
    /// hostname and port: the owner of the name may be another tenant.
    pub(super) fn conflict_text(
        self,
        reason: Reason,
        parent: &Parent,
        listener: &ParentListener,
    ) -> String {
        let port = listener.transport_port();
        let place = &parent.placement.frontend_owner;
        if !listener.has_hostnames() && reason != Reason::ProtocolConflict {
            return self.port_conflict_text(reason, parent, listener);
        }
        let name = if listener.hostname.is_any() {
            "the catch-all hostname".to_owned()
        } else {
            format!("hostname {}", listener.hostname)
        };
        match reason {
            Reason::Pending => {
                format!("{name} is being recorded as this namespace's, and is served once that is written")
            }
            Reason::LimitReached => {
                let frontend = parent.frontend(port);
                let exceeded =
                    self.admission().beyond_quota(&frontend, &listener.hostname, &parent.id(listener));
                format!("{name} is not recorded as this namespace's: {}", exceeded.unwrap_or_default())
            }
            Reason::ProtocolConflict if gateway_exposure::is_shared(place) => {
                let speaks = match self.frontends.get(&parent.frontend(port)).and_then(|f| f.claims().family()) {
                    Some(Family::Tls) => "speaks TLS: use protocol HTTPS or TLS there",
                    Some(Family::Http) => "speaks plain HTTP: use protocol HTTP there",
                    Some(Family::Tcp | Family::Udp) => "is passed on as it comes",
                    None => "is wanted for HTTP and for TLS by one Gateway: leave one of them out",
                };
                format!("port {port} of the shared fleet {speaks}, or take another port")
            }
            Reason::ProtocolConflict => self.protocol_conflict_text(parent, listener),
            _ if self.admission().owned_by_another(parent, &listener.hostname) && listener.hostname.is_any() => {
                "another namespace owns the catch-all hostname on this address: the first one keeps it; give this \
                 listener a hostname"
                    .to_owned()
            }
            _ if self.admission().owned_by_another(parent, &listener.hostname) => {
                format!(
                    "{name} belongs to another namespace on this address, itself or by a wildcard over it: the first one \
                     keeps it; take another name, or ask the operator of the installation to release it"
                )
            }
            _ if listener.hostname.is_any() => {
                format!("port {port} conflicts with a listener of the same protocol and no hostname")
            }
            _ => format!("hostname {} on port {port} conflicts with another listener", listener.hostname),
        }
    }
}

impl Report<'_> {
    /// The message why the protocol of a listener cannot share its port. A listener of another
    /// object may be another tenant's, and is not named.
    pub(super) fn protocol_conflict_text(
        self,
        parent: &Parent,
        listener: &ParentListener,
    ) -> String {
        let port = listener.transport_port();
        let is_contrary = |other: &&ParentListener| {
            other.transport_port() == port
                && other.protocol.map(Protocol::family) != listener.protocol.map(Protocol::family)
        };
        let other = parent.listeners.iter().find(is_contrary);
        if let Some((other, protocol)) =
            other.and_then(|other| Some((&other.name, other.protocol?.as_str())))
        {
            return format!(
                "port {port} conflicts with listener {other}, whose protocol {protocol} cannot share the port: take another port"
            );
        }
        match self
            .frontends
            .get(&parent.frontend(port))
            .and_then(|frontend| frontend.claims().family())
        {
            Some(family) => format!(
                "port {port} conflicts with another listener, which has it for {}: take another port",
                family.as_str()
            ),
            None => format!(
                "port {port} conflicts with another listener, whose protocol cannot share the port"
            ),
        }
    }

    /// The message why a listener without hostname does not get its port.
    pub(super) fn port_conflict_text(
        self,
        reason: Reason,
        parent: &Parent,
        listener: &ParentListener,
    ) -> String {
        let port = listener.transport_port();
        match reason {
            Reason::Pending => {
                format!(
                    "port {port} is being recorded as this namespace's, and is served once that is written"
                )
            }
            _ if self.admission().is_port_of_another(parent, port) => format!(
                "port {port} of the shared fleet belongs to another namespace: the first one keeps it; take another port, or \
                 ask the operator of the installation to release it"
            ),
            _ => format!("port {port} conflicts with another listener, and only one can use it"),
        }
    }
}

impl Report<'_> {
    /// True if a listener's hostname is not served because an older one has the hash of its scope.
    pub(super) fn has_hash_of_another(
        self,
        frontend: &FrontendId,
        listener: &ParentListener,
    ) -> bool {
        let keys = &self.frontends.scope_keys;
        keys.is_second(frontend, &listener.hostname)
    }
}

/// The message about a hostname whose scope has the hash of an older one.
pub(super) fn same_hash_text(listener: &ParentListener) -> String {
    format!(
        "hostname {} is not served: Envoy finds routes by a hash of the hostname, and an older hostname has the same \
         one; take another name",
        listener.hostname
    )
}

/// The Gateway that holds a port instead of another one: its name is told within its namespace
/// alone.
pub(super) fn holder(parent: &Parent, rival: &FrontendId) -> String {
    if rival.gateway.namespace == parent.placement.gateway.namespace {
        format!("gateway {}", rival.gateway)
    } else {
        "another Gateway".to_owned()
    }
}
