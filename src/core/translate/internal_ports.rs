//! The ports of the Envoys that lead to Gateways of the dedicated fleet, and to nobody else.

use std::collections::BTreeMap;

use crate::inputs::Exposure;
use crate::model::{Reason, TransportPort};

/// The ports of the Envoys that lead to Gateways of the dedicated fleet, and to nobody else: below those that Kubernetes
/// gives to nodes and Linux to clients.
pub(super) const INTERNAL: std::ops::Range<u16> = 20_000..30_000;

/// Why a listener has no place on a port: it is one at which Envoys serve Gateways of the dedicated fleet, which whoever
/// binds it as well would get the connections of.
pub(super) fn reserved(port: u16) -> Option<(Reason, String)> {
    INTERNAL.contains(&port).then(|| {
        let text = format!(
            "port {port} is not to be had: on ports {} to {} Envoys serve Gateways of fleet Dedicated; use another one",
            INTERNAL.start,
            INTERNAL.end - 1
        );
        (Reason::PortUnavailable, text)
    })
}

/// Whether Envoys serve Gateways of the dedicated fleet on a port: Services record whose it is.
pub(super) fn is_internal(port: u16) -> bool {
    INTERNAL.contains(&port)
}

/// The ports of the Envoys that a Service records, each once. What could be nobody's is not believed: anybody who may
/// write Services can make one that looks like ours.
pub(super) fn recorded(exposure: &Exposure) -> BTreeMap<TransportPort, u16> {
    let mut targets = BTreeMap::new();
    for (port, target) in exposure.targets.iter().filter(|(_, target)| INTERNAL.contains(target)) {
        if !targets.values().any(|taken| taken == target) {
            targets.insert(*port, *target);
        }
    }
    targets
}
