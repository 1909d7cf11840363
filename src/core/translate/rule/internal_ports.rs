//! The Envoy ports that lead to Gateways of the dedicated fleet alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::settings::Settings;
use gatewright_objects::inputs::MadeService;
use gatewright_objects::model::{Reason, TransportPort};

/// The Envoy ports that lead to Gateways of the dedicated fleet alone: below the range of node
/// ports of Kubernetes and the ephemeral ports of Linux.
pub(crate) const INTERNAL: Range<u16> = 20_000..30_000;

/// The reason to refuse a port that is reserved for Gateways of the dedicated fleet: another
/// frontend that is bound to it would get their connections.
pub(crate) fn reserved(port: u16) -> Option<(Reason, String)> {
    INTERNAL.contains(&port).then(|| {
        let text = format!(
            "port {port} is reserved: Envoys use ports {} to {} for Gateways of fleet Dedicated; use another port",
            INTERNAL.start,
            INTERNAL.end - 1
        );
        (Reason::PortUnavailable, text)
    })
}

/// The message about a port of a Gateway for which no Envoy port is free.
pub(crate) fn exhausted(port: TransportPort) -> String {
    let first = INTERNAL.start;
    let last = INTERNAL.end - 1;
    format!(
        "no port of Envoys is free for port {port}: other Gateways have all from {first} to {last}; delete some of them"
    )
}

/// The ports that are reserved for Gateways of the dedicated fleet; Services record which Gateway
/// has them. Only a cluster has that fleet, standalone serves all ports alike.
pub(crate) fn reserved_ports(settings: &Settings) -> Range<u16> {
    if settings.envoys.is_some() {
        INTERNAL
    } else {
        0..0
    }
}

/// The Envoy ports that a Service records, each once. Impossible ones are ignored: anybody who may
/// write Services can write one that looks like ours.
pub(crate) fn recorded(exposure: &MadeService) -> BTreeMap<TransportPort, u16> {
    let mut taken = BTreeSet::new();
    let possible = exposure
        .targets
        .iter()
        .filter(|(_, target)| INTERNAL.contains(target) && taken.insert(**target));
    possible.map(|(port, target)| (*port, *target)).collect()
}
