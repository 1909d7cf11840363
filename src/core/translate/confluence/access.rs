//! AccessPolicies, and TrafficPolicies on Gateways, ListenerSets and routes, among the objects.

use proptest::prelude::*;
use serde_json::json;

use super::{NAMESPACES, object, pick};
use crate::inputs::Object;

/// Policies on Gateways, ListenerSets and routes that may not be there: AccessPolicies with a valid
/// list of networks or another, and TrafficPolicies with rate limits, which have the names of those
/// on Services.
pub(super) fn attached_policy() -> impl Strategy<Value = Object> {
    let target = prop_oneof![
        (Just("Gateway"), pick(&["g", "f"]), pick(&["", "l0", "l1"])),
        (
            Just("ListenerSet"),
            pick(&["s", "t"]),
            pick(&["", "l0", "l1"])
        ),
        (
            pick(&["HTTPRoute", "GRPCRoute"]),
            pick(&["r", "q", "p"]),
            pick(&["", "main", "0"])
        ),
    ];
    let policy = (
        pick(NAMESPACES),
        pick(&["p", "o"]),
        0u32..3,
        proptest::collection::btree_set(target, 1..3),
        pick(&[
            "10.0.0.0/8",
            "192.0.2.0/24",
            "nowhere",
            "Everyone",
            "ClientAddress",
            "Nobody",
        ]),
    );
    policy.prop_map(|(namespace, name, created, targets, asked)| {
        let targets = targets.into_iter().map(|(kind, name, section)| {
            let group = "gateway.networking.k8s.io";
            let mut target = json!({"group": group, "kind": kind, "name": name});
            if !section.is_empty() {
                target["sectionName"] = json!(section);
            }
            target
        });
        let targets: Vec<_> = targets.collect();
        let (kind, field, value) = match asked {
            "Everyone" | "ClientAddress" | "Nobody" => {
                // Zero requests are refused.
                let requests = if asked == "Nobody" { 0 } else { created + 1 };
                let by = if asked == "ClientAddress" {
                    asked
                } else {
                    "Everyone"
                };
                let limit = json!({"requests": requests, "per": "Second"});
                let limits = json!([{"limit": limit, "by": {"type": by}}]);
                ("TrafficPolicy", "rateLimit", limits)
            }
            network => ("AccessPolicy", "clientAddress", json!({"allow": [network]})),
        };
        let mut policy = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": kind,
            "metadata": {"namespace": namespace, "name": name,
                "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
            "spec": {"targetRefs": targets}});
        policy["spec"][field] = value;
        object(policy)
    })
}
