use std::time::SystemTime;

use serde_json::{Value, json};

use crate::rule::internal_ports::INTERNAL;
use crate::{Change, Engine, Fleet, ServiceIntent, Settings, StatusBody};
use gatewright_objects::inputs::{EXPOSES, Kind, MANAGED_BY, MANAGER, Object, ObjectKey};
use gatewright_objects::limits::{Limits, NamespaceLimits};
use gatewright_objects::model::{ConditionType, ObjectName, TransportPort};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

/// An installation with a class for each fleet that has Services.
struct Site(Engine);

impl Site {
    fn new() -> Self {
        let settings = Settings {
            limits: Limits {
                namespace: NamespaceLimits {
                    isolated_gateways: 1,
                    ..Limits::NONE.namespace
                },
                ..Limits::NONE
            },
            fleet: Fleet::Shared,
            envoys: Some(ObjectName::new("ours", "envoy")),
            isolated: Some("ours".into()),
            ..Settings::new("c", vec![])
        };
        let mut site = Self(Engine::new(settings));
        for (class, fleet) in [("dedicated", "Dedicated"), ("isolated", "Isolated")] {
            site.put(
                json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
                "metadata": {"namespace": "ours", "name": class}, "spec": {"fleet": fleet}}),
            );
            site.put(
                json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": class},
                "spec": {"controllerName": "c", "parametersRef": {"group": "gatewright.io",
                    "kind": "GatewayParameters", "name": class, "namespace": "ours"}}}),
            );
        }
        site
    }

    fn put(&mut self, value: Value) {
        let object = Object::parse_admitted(value).expect("an object");
        self.0
            .apply(vec![Change::put(object)], SystemTime::UNIX_EPOCH);
    }

    fn delete(&mut self, kind: Kind, namespace: &str, name: &str) {
        let key = ObjectKey::new(kind, ObjectName::new(namespace, name));
        self.0
            .apply(vec![Change::delete(key)], SystemTime::UNIX_EPOCH);
    }

    /// The intended Envoy ports of a Gateway's Service.
    fn targets(&self, namespace: &str) -> Vec<u16> {
        match self.0.services().get(&ObjectName::new(namespace, "edge")) {
            Some(ServiceIntent::Wanted(desired)) => desired.targets.values().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// The intended Envoy port for port 80.
    fn target(&self, namespace: &str) -> Option<u16> {
        match self.0.services().get(&ObjectName::new(namespace, "edge")) {
            Some(ServiceIntent::Wanted(desired)) => {
                desired.targets.get(&TransportPort::tcp(80)).copied()
            }
            _ => None,
        }
    }

    /// `Programmed` of the first listener of a Gateway, and of the Gateway.
    fn told(&self, namespace: &str) -> [String; 2] {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new(namespace, "edge"));
        let Some(StatusBody::Gateway(status)) = self.0.status(&key).map(|status| status.body)
        else {
            panic!("a Gateway has a status")
        };
        [&status.listeners[0].conditions, &status.conditions].map(|conditions| {
            let found = conditions
                .iter()
                .find(|condition| condition.kind == ConditionType::Programmed);
            found.expect("it has one").message.clone()
        })
    }
}

/// A Gateway with TCP listeners at these ports, whose UID is its namespace.
fn gateway(
    namespace: &str,
    class: &str,
    created: u32,
    ports: impl IntoIterator<Item = u16>,
) -> Value {
    fn listener(port: u16) -> Value {
        json!({"name": format!("l{port}"), "protocol": "TCP", "port": port})
    }
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"namespace": namespace, "name": "edge",
            "uid": namespace, "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
        "spec": {"gatewayClassName": class, "listeners": ports.into_iter().map(listener).collect::<Vec<_>>()}})
}

/// A Service that looks as if it were made for the Gateway of this UID, with these ports and Envoy
/// ports.
fn service(
    namespace: &str,
    name: &str,
    uid: &str,
    ports: impl IntoIterator<Item = (u16, u16)>,
) -> Value {
    fn port((port, target): (u16, u16)) -> Value {
        json!({"name": format!("p{port}"), "port": port, "targetPort": target})
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name, "uid": "s",
            "labels": {MANAGED_BY: MANAGER}, "annotations": {EXPOSES: "edge"}, "ownerReferences": [
                {"apiVersion": GATEWAY, "kind": "Gateway", "name": "edge", "uid": uid, "controller": true}]},
        "spec": {"clusterIP": "None", "ports": ports.into_iter().map(port).collect::<Vec<_>>()}})
}

#[test]
fn a_service_for_a_gateway_that_nobody_serves_takes_no_ports() {
    let mut site = Site::new();
    site.put(gateway("shop", "dedicated", 9, [80]));
    let port = site.target("shop").expect("one is chosen");
    site.put(service("shop", "edge-dedicated", "shop", [(80, port)]));
    // The Gateway of the tenant is the oldest, and its class does not exist.
    site.put(gateway("mallory", "none", 0, [80]));
    for name in ["edge-none", "any"] {
        site.put(service("mallory", name, "mallory", [(80, port)]));
        assert_eq!(site.target("shop"), Some(port), "{name}");
        site.put(service(
            "mallory",
            name,
            "mallory",
            (0..10_000).map(|n| (1 + n, 20_000 + n)),
        ));
        assert_eq!(site.target("shop"), Some(port), "{name}");
        site.put(gateway("shop", "dedicated", 9, [80, 443]));
        assert_eq!(
            site.targets("shop").len(),
            2,
            "another listener has its port"
        );
        site.put(gateway("new", "dedicated", 9, [80]));
        assert!(site.target("new").is_some_and(|new| new != port));
        site.delete(Kind::Gateway, "new", "edge");
    }
}

#[test]
fn an_older_gateway_takes_ports_only_by_its_own_service_and_for_its_own_ports() {
    let mut site = Site::new();
    site.put(gateway("shop", "dedicated", 9, [80]));
    let port = site.target("shop").expect("one is chosen");
    site.put(service("shop", "edge-dedicated", "shop", [(80, port)]));
    site.put(gateway("older", "dedicated", 0, [80]));
    for (name, uid, at) in [
        ("any", "older", 80),
        ("edge-dedicated", "former", 80),
        ("edge-dedicated", "older", 81),
    ] {
        site.put(service("older", name, uid, [(at, port)]));
        assert_eq!(site.target("shop"), Some(port), "{name} of {uid} at {at}");
        assert_ne!(site.target("older"), Some(port));
        site.delete(Kind::Service, "older", name);
    }
    // If two Services record one port, the older Gateway has it.
    site.put(service("older", "edge-dedicated", "older", [(80, port)]));
    assert_eq!(site.target("older"), Some(port));
    assert!(site.target("shop").is_some_and(|other| other != port));
}

/// Its Service still leads to them.
#[test]
fn a_refused_gateway_keeps_its_ports_and_those_of_others_are_chosen_last() {
    let mut site = Site::new();
    let mut refused = gateway("shop", "dedicated", 9, [80]);
    site.put(gateway("new", "dedicated", 9, [80]));
    let first = site.target("new").expect("one is chosen");
    site.put(service("shop", "edge-dedicated", "shop", [(80, first)]));
    let next = site.target("new");
    assert_ne!(
        next,
        Some(first),
        "a Service still leads there, whose Gateway is not known"
    );
    refused["spec"]["infrastructure"] = json!({"parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters", "name": "gone"}});
    site.put(refused);
    assert_eq!(site.target("new"), next);
    // If both Services record the port, the older Gateway has it, refused or not.
    site.put(service("new", "edge-dedicated", "new", [(80, first)]));
    assert_eq!(site.target("new"), Some(first), "it is the first by name");
    site.put(gateway("new", "dedicated", 10, [80]));
    assert_eq!(site.target("new"), next);
    site.put(gateway("shop", "dedicated", 9, [80]));
    assert_eq!(
        site.target("shop"),
        Some(first),
        "the refused Gateway keeps its port"
    );
    assert_eq!(site.target("new"), next, "the new one has the next");
}

#[test]
fn gateways_with_envoys_of_their_own_take_no_ports_of_others() {
    let mut site = Site::new();
    site.put(gateway("own", "isolated", 0, [80]));
    let port = site.target("own").expect("one is chosen");
    site.put(service("own", "edge-isolated", "own", [(80, port)]));
    site.put(gateway("shop", "dedicated", 9, [80]));
    site.put(service("shop", "edge-dedicated", "shop", [(80, port)]));
    assert_eq!(site.target("own"), Some(port), "of other Envoys");
    assert_eq!(site.target("shop"), Some(port), "of other Envoys");
}

#[test]
fn a_gateway_without_a_port_says_so_and_gets_the_first_that_is_free() {
    let mut site = Site::new();
    for first in INTERNAL.step_by(64) {
        let namespace = format!("n{first}");
        let last = INTERNAL.end.min(first + 64);
        fn ports(last: &u16, first: &u16) -> std::ops::RangeInclusive<u16> {
            1..=*last - *first
        }
        site.put(service(
            &namespace,
            "edge-dedicated",
            &namespace,
            ports(&last, &first).map(|port| (port, first + port - 1)),
        ));
        site.put(gateway(&namespace, "dedicated", 0, ports(&last, &first)));
    }
    site.put(gateway("shop", "dedicated", 9, [80]));
    let intent = site.0.services().get(&ObjectName::new("shop", "edge"));
    assert_eq!(
        intent,
        Some(&ServiceIntent::Left),
        "the API server refuses a Service without ports"
    );
    for told in site.told("shop") {
        assert!(
            told.starts_with("no port of Envoys is free for port 80: "),
            "{told}"
        );
    }
    site.delete(Kind::Gateway, "n20640", "edge");
    assert!(
        site.target("shop")
            .is_some_and(|port| (20_640..20_704).contains(&port))
    );
    assert_eq!(
        site.told("shop")[0],
        "the Gateway's Service does not lead to Envoys yet"
    );
}
