//! The claimants of what the record of ownership decides, and the ports of the shared fleet.

use std::sync::Arc;

use super::gateway_exposure::shared;
use crate::key::{ListenerId, RouteKey};
use gatewright_objects::model::{Family, FrontendId, ObjectName, Transport, TransportPort};

/// A claimant, ordered by precedence among claims that arrive together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claimant {
    /// The creation time of the claiming object.
    pub(crate) created: i64,
    /// Its namespace.
    pub(crate) namespace: Arc<str>,
    /// The namespace of the Gateway that admitted the claimant and would serve it.
    pub(crate) through: Arc<str>,
    /// The claiming object.
    pub(crate) by: By,
    /// The protocol of the claim.
    pub(crate) protocol: Family,
}

/// The object that makes a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    Listener(ListenerId),
    Frontend(FrontendId),
    Route(ListenerId, RouteKey),
}

/// The protocol family of a well-known port of the shared fleet, which no claim changes.
pub(crate) fn well_known(port: TransportPort) -> Option<Family> {
    match (port.number, port.transport) {
        (80, Transport::Tcp) => Some(Family::Http),
        (443, Transport::Tcp) => Some(Family::Tls),
        _ => None,
    }
}

/// The frontend of a port of the shared fleet.
pub(crate) fn shared_frontend(port: TransportPort) -> FrontendId {
    let TransportPort { number, transport } = port;
    FrontendId {
        gateway: ObjectName::clone(shared()),
        port: number,
        transport,
        isolated: false,
    }
}
