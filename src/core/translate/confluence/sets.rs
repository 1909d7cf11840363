//! ListenerSets of both kinds, and references of routes to parents.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{NAMESPACES, gateway_object, listeners, pick};
use gatewright_objects::inputs::Object;

/// ListenerSets and XListenerSets, some of one name.
pub(super) fn listener_set() -> impl Strategy<Value = Object> {
    let kind = pick(&["ListenerSet", "ListenerSet", "XListenerSet"]);
    (
        kind,
        pick(NAMESPACES),
        pick(&["s", "t"]),
        0u32..3,
        pick(NAMESPACES),
        listeners(),
    )
        .prop_map(|(kind, namespace, name, created, parent, listeners)| {
            let spec =
                json!({"parentRef": {"namespace": parent, "name": "g"}, "listeners": listeners});
            gateway_object(kind, namespace, name, created, spec)
        })
}

/// References to Gateways and ListenerSets of both kinds.
pub(super) fn parent_refs() -> impl Strategy<Value = Value> {
    let one = (
        pick(&["Gateway", "ListenerSet", "XListenerSet"]),
        pick(NAMESPACES),
        pick(&["", "l0", "l1"]),
        pick(&["g", "f"]),
    );
    proptest::collection::vec(one, 0..3).prop_map(|all| {
        Value::Array(all.into_iter().map(|(kind, namespace, section, gateway)| {
            let name = if kind == "Gateway" { gateway } else { "s" };
            let mut parent =
                json!({"group": group(kind), "kind": kind, "namespace": namespace, "name": name});
            if !section.is_empty() {
                parent["sectionName"] = json!(section);
            }
            parent
        }).collect())
    })
}

/// The API group of a kind of the Gateway API.
pub(super) fn group(kind: &str) -> &'static str {
    if kind.starts_with('X') {
        "gateway.networking.x-k8s.io"
    } else {
        "gateway.networking.k8s.io"
    }
}
