//! Endpoints of an EndpointSlice, as the service proxies of nodes see them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions};

use crate::model::Zone;

/// An endpoint to which service proxies forward connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SliceEndpoint {
    /// True if it terminates and still serves, so that it is used while no other is ready
    /// (KEP-1669). Others are ready.
    pub terminating: bool,
    /// Its node. With `externalTrafficPolicy: Local` a node forwards to endpoints with its name
    /// only.
    pub node: Option<Arc<str>>,
    /// The zone whose clients prefer it: the one that its hints name, if they name a single one,
    /// else its own. A text that is no zone counts as none.
    pub zone: Option<Zone>,
}

/// How an endpoint is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Used {
    /// It is ready. An absent `ready` counts as ready, as the API specifies.
    Ready,
    /// It terminates and still serves, and is used while no other is ready (KEP-1669). An absent
    /// `serving` counts as serving, as the API specifies.
    Terminating,
}

impl Used {
    /// Returns how an endpoint is used; `None` for one that is not.
    pub(super) fn of(endpoint: &Endpoint) -> Option<Self> {
        let EndpointConditions {
            ready,
            serving,
            terminating,
        } = endpoint.conditions.clone().unwrap_or_default();
        match (ready, serving, terminating) {
            (None | Some(true), ..) => Some(Used::Ready),
            (Some(false), None | Some(true), Some(true)) => Some(Used::Terminating),
            (Some(false), ..) => None,
        }
    }
}

impl SliceEndpoint {
    /// Reads the endpoints of a slice that are used, sorted by address.
    pub(super) fn read(endpoints: &[Endpoint]) -> Box<[(IpAddr, Self)]> {
        let mut nodes: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut zones: BTreeSet<Zone> = BTreeSet::new();
        let mut all = Vec::new();
        for endpoint in endpoints {
            let Some(used) = Used::of(endpoint) else {
                continue;
            };
            let terminating = used == Used::Terminating;
            let node = endpoint
                .node_name
                .as_deref()
                .map(|name| match nodes.get(name) {
                    Some(known) => known.clone(),
                    None => {
                        let name: Arc<str> = name.into();
                        nodes.insert(name.clone());
                        name
                    }
                });
            let zone = zone(endpoint).map(|zone| match zones.get(&zone) {
                Some(known) => known.clone(),
                None => {
                    zones.insert(zone.clone());
                    zone
                }
            });
            let addresses = endpoint
                .addresses
                .iter()
                .filter_map(|address| address.parse().ok());
            all.extend(addresses.map(|address| {
                (
                    address,
                    Self {
                        terminating,
                        node: node.clone(),
                        zone: zone.clone(),
                    },
                )
            }));
        }
        all.sort();
        all.into()
    }
}

/// The zone whose clients prefer an endpoint.
fn zone(endpoint: &Endpoint) -> Option<Zone> {
    let hints = endpoint.hints.as_ref();
    let hinted = match hints.and_then(|hints| hints.for_zones.as_deref()) {
        Some([only]) => Some(&only.name),
        _ => None,
    };
    Zone::parse(hinted.or(endpoint.zone.as_ref())?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn those_that_serve_are_read_with_their_nodes() {
        let endpoints: Vec<Endpoint> = serde_json::from_value(json!([
            {"addresses": ["10.0.0.4"], "conditions": {"ready": false, "serving": true, "terminating": true}, "nodeName": "n"},
            {"addresses": ["10.0.0.1"], "nodeName": "n"},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": true, "serving": true, "terminating": true}},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": false, "serving": false, "terminating": true}},
            {"addresses": ["10.0.0.5"], "conditions": {"ready": false}},
            {"addresses": ["10.0.0.6"], "conditions": {"ready": false, "terminating": true}},
        ]))
        .expect("endpoints");
        let read = SliceEndpoint::read(&endpoints);
        let shown: Vec<String> = read
            .iter()
            .map(|(address, endpoint)| {
                format!(
                    "{address} {} {:?}",
                    endpoint.terminating,
                    endpoint.node.as_deref()
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                "10.0.0.1 false Some(\"n\")",
                "10.0.0.2 false None",
                "10.0.0.4 true Some(\"n\")",
                "10.0.0.6 true None"
            ]
        );
    }

    #[test]
    fn a_single_hint_is_the_zone_of_an_endpoint() {
        fn zones(names: &[&str]) -> serde_json::Value {
            names.iter().map(|name| json!({"name": name})).collect()
        }
        for (endpoint, expected) in [
            (json!({"zone": "a"}), Some("a")),
            (
                json!({"zone": "a", "hints": {"forZones": zones(&["b"])}}),
                Some("b"),
            ),
            (json!({"hints": {"forZones": zones(&["b"])}}), Some("b")),
            (
                json!({"zone": "a", "hints": {"forZones": zones(&["b", "c"])}}),
                Some("a"),
            ),
            (json!({"zone": "a", "hints": {"forZones": []}}), Some("a")),
            (json!({"zone": "a/b"}), None),
            (json!({}), None),
        ] {
            let mut written = endpoint.clone();
            written["addresses"] = json!(["10.0.0.1"]);
            let endpoints: Vec<Endpoint> =
                serde_json::from_value(json!([written])).expect("endpoints");
            let read = SliceEndpoint::read(&endpoints);
            let zone = read[0].1.zone.as_ref().map(Zone::as_str);
            assert_eq!(zone, expected, "{endpoint}");
        }
    }
}
