//! Gateways that stand on Services: generated among all other objects, and with few others.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    NAMESPACES, World, challenge, check, config, exposure, gateway_object, object, parameters, pick,
};
use crate::{Change, Resource, ServiceIntent};
use gatewright_objects::inputs::{MANAGER, Object, SLICES_BY, STANDS_ON};
use gatewright_objects::model::FrontendId;

const SERVICES: &[&str] = &["api", "alt", "web", "g-common"];

/// Objects for Gateways on Services: their parameters, Services, lent slices, and the slices of
/// Envoys.
pub(super) fn named() -> impl Strategy<Value = Object> {
    let chosen = (pick(NAMESPACES), pick(&["api", "alt", "web", "gone", ""])).prop_map(
        |(namespace, service)| {
            let spec = match service {
                "" => json!({}),
                service => json!({"service": {"name": service}}),
            };
            object(
                json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": namespace, "name": "n"}, "spec": spec}),
            )
        },
    );
    let target = || prop_oneof![5 => (25_225i32..25_228).prop_map(|port| json!(port)), 1 => Just(json!("e")), 1 => Just(json!(80))];
    let ports = (target(), target(), target());
    let service = (
        pick(NAMESPACES),
        pick(&["api", "alt"]),
        ports,
        pick(&["", "", "", "selector", "headless"]),
    );
    let service = service.prop_map(|(namespace, name, (first, second, datagrams), how)| {
        let mut spec = json!({"type": "ClusterIP", "clusterIPs": ["10.96.0.1"], "ports": [
            {"name": "p", "port": 80, "targetPort": first}, {"name": "s", "port": 443, "targetPort": second},
            {"name": "u", "port": 80, "targetPort": datagrams, "protocol": "UDP"}]});
        match how {
            "selector" => spec["selector"] = json!({"app": "x"}),
            "headless" => spec["clusterIP"] = json!("None"),
            _ => {}
        }
        object(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
            "spec": spec}))
    });
    let lent = (
        pick(NAMESPACES),
        pick(&["g", "f"]),
        pick(SERVICES),
        25_225i32..25_228,
        25_225i32..25_228,
    );
    let lent = lent.prop_map(|(namespace, gateway, service, first, second)| {
        let labels = json!({"kubernetes.io/service-name": service, SLICES_BY: MANAGER});
        object(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": namespace, "name": format!("{gateway}-{service}-v4"), "uid": "s",
                "labels": labels, "annotations": {STANDS_ON: service}, "ownerReferences": [{
                    "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": gateway, "uid": "g",
                    "controller": true}]},
            "ports": [{"name": "p", "port": first}, {"name": "s", "port": second},
                {"name": "u", "port": second, "protocol": "UDP"}], "endpoints": []}))
    });
    let fleet = (pick(&["one", "two"]), 25_225i32..25_227).prop_map(|(name, port)| {
        object(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": "a", "name": name, "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"name": "e", "port": port}], "endpoints": [{"addresses": ["10.0.0.9"]}]}))
    });
    prop_oneof![3 => chosen, 4 => service, 4 => lent, 1 => fleet]
}

/// Gateways that may stand on Services, and little else.
fn standing() -> impl Strategy<Value = Change> {
    let listeners = || {
        proptest::collection::vec(listener(), 1..3).prop_map(|all| {
            all.into_iter().enumerate().map(|(n, (protocol, port))| {
                json!({"name": format!("l{n}"), "protocol": protocol, "port": port})
            }).collect::<Vec<Value>>()
        })
    };
    let gateway = (
        pick(NAMESPACES),
        pick(&["g", "f"]),
        0u32..3,
        listeners(),
        pick(&["n", "n", "n", ""]),
    );
    let gateway = gateway.prop_map(|(namespace, name, created, listeners, parameters)| {
        let mut spec = json!({"gatewayClassName": "common", "listeners": listeners,
            "allowedListeners": {"namespaces": {"from": "All"}}});
        refer(&mut spec, parameters);
        gateway_object("Gateway", namespace, name, created, spec)
    });
    let set = (pick(NAMESPACES), pick(NAMESPACES), listeners()).prop_map(
        |(namespace, parent, listeners)| {
            let spec =
                json!({"parentRef": {"namespace": parent, "name": "g"}, "listeners": listeners});
            gateway_object("ListenerSet", namespace, "s", 0, spec)
        },
    );
    let class = pick(&[
        "Dedicated, named",
        "Dedicated, named",
        "Dedicated",
        "Shared",
    ])
    .prop_map(parameters);
    let made = (pick(NAMESPACES), pick(&["g", "f"]), 25_225i32..25_227)
        .prop_map(|(namespace, gateway, target)| exposure(namespace, gateway, "10.9.0.1", target));
    let object = prop_oneof![4 => gateway, 1 => set, 1 => class, 1 => made, 6 => named()];
    let objects = (object, proptest::bool::weighted(0.2)).prop_map(|(object, delete)| {
        if delete {
            Change::delete(object.key())
        } else {
            Change::put(object)
        }
    });
    prop_oneof![20 => objects, 1 => challenge()]
}

fn listener() -> (
    impl Strategy<Value = &'static str>,
    prop::sample::Select<i32>,
) {
    (
        pick(&["HTTP", "HTTP", "TCP", "UDP"]),
        proptest::sample::select(vec![80, 80, 443]),
    )
}

/// Sets the parameters reference of a Gateway, if `parameters` is not empty.
pub(super) fn refer(spec: &mut Value, parameters: &str) {
    if !parameters.is_empty() {
        let reference =
            json!({"group": "gatewright.io", "kind": "GatewayParameters", "name": parameters});
        spec["infrastructure"] = json!({"parametersRef": reference});
    }
}

/// Checks that a port that leads to a Gateway by a Service leads to no other one: not by the same
/// Envoy port, and not by a port on which another Gateway listens.
pub(super) fn misled(world: &World) -> String {
    let mut told = String::new();
    let mut led: BTreeMap<u16, &gatewright_objects::model::ObjectName> = BTreeMap::new();
    for intent in world.services.values() {
        let ServiceIntent::Slices(desired) = intent else {
            continue;
        };
        for at in desired.ports.values() {
            if let Some(other) = led
                .insert(at.number, &desired.gateway)
                .filter(|other| **other != desired.gateway)
            {
                told += &format!("{} leads to {} and {other}\n", at.number, desired.gateway);
            }
        }
    }
    for resource in world.resources.values() {
        let Resource::Frontend(frontend) = resource else {
            continue;
        };
        let FrontendId {
            gateway, isolated, ..
        } = &frontend.id;
        if *isolated {
            continue;
        }
        if let Some(other) = led.get(&frontend.port).filter(|other| **other != gateway) {
            told += &format!(
                "{other} is led to {}, where {gateway} listens\n",
                frontend.port
            );
        }
    }
    told
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn gateways_on_services_that_they_name_change_together(
        batches in proptest::collection::vec(proptest::collection::vec(standing(), 1..4), 1..16)
    ) {
        let open = vec![Change::put(parameters("Dedicated, named"))];
        check("by a Service", std::iter::once(open).chain(batches).collect())?;
    }
}
