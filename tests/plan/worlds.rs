//! Random objects: Gateways, ListenerSets and routes of three namespaces that want the same
//! hostnames.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gatewright::plan::Change;
use gatewright_core::inputs::{Object, ObjectKey, Secret};
use gatewright_core::model::{Certificate, Hostname, ObjectName, PrivateKey};
use proptest::prelude::*;
use serde_json::{Value, json};

pub(crate) const OURS: &str = "gatewright.io/gateway-controller";
const GATEWAY: &str = "gateway.networking.k8s.io/v1";
pub(crate) const HOSTS: [&str; 6] = ["", "*.x.org", "h.x.org", "g.x.org", "k.h.x.org", "y.org"];

pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000)
}

fn object(value: Value) -> Object {
    let text = value.to_string();
    Object::parse(value).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// What there is before any change: classes, namespaces, applications and certificates.
pub(crate) fn beginning() -> Vec<Object> {
    let mut objects = Vec::new();
    let parameters = json!({"group": "gatewright.io", "kind": "GatewayParameters", "namespace": "a", "name": "p"});
    objects.push(object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "a", "name": "p"}, "spec": {"plainHttp": "Redirect"}}),
    ));
    for (name, more) in [("plain", Value::Null), ("redirecting", parameters)] {
        let mut spec = json!({"controllerName": OURS});
        if !more.is_null() {
            spec["parametersRef"] = more;
        }
        objects.push(object(
            json!({"apiVersion": GATEWAY, "kind": "GatewayClass",
            "metadata": {"name": name}, "spec": spec}),
        ));
    }
    for namespace in ["a", "b", "c"] {
        objects.push(object(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": namespace}})));
        for service in ["web", "next"] {
            objects.push(object(json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"namespace": namespace, "name": service},
                "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "http", "port": 80}]}})));
        }
        objects.push(secret(namespace, "one"));
    }
    objects
}

/// A Secret with a certificate for every name.
fn secret(namespace: &str, serial: &str) -> Object {
    let certificate = Certificate {
        leaf: format!("chain {serial}").as_bytes().into(),
        issuers: Arc::from(""),
        key: PrivateKey::new(b"key"),
        names: vec![Hostname::any()],
        not_before: SystemTime::UNIX_EPOCH,
        not_after: now() + Duration::from_secs(1000),
        issuer: Arc::from("test"),
    };
    Secret::with_certificate(ObjectName::new(namespace, "own"), Arc::new(certificate)).into()
}

fn pick<T: Copy + std::fmt::Debug + 'static>(options: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(options)
}

/// A listener: of its protocol there is a port.
fn listener() -> impl Strategy<Value = (&'static str, &'static str, &'static str)> {
    let protocols = pick(&["HTTP", "HTTPS", "HTTPS", "HTTPS", "TLS", "TCP"]);
    (
        protocols,
        pick(&HOSTS),
        pick(&["own", "missing", "internal-ca", "le"]),
    )
}

fn listener_of(
    index: usize,
    (protocol, host, certificate): (&str, &str, &str),
    from: &str,
) -> Value {
    let port = match protocol {
        "HTTP" => 80,
        "TCP" => 5432,
        _ => 443,
    };
    let mut listener = json!({"name": format!("l{index}"), "port": port, "protocol": protocol,
            "allowedRoutes": {"namespaces": {"from": from}}});
    if !host.is_empty() && protocol != "TCP" {
        listener["hostname"] = json!(host);
    }
    match (protocol, certificate) {
        ("TLS", _) => listener["tls"] = json!({"mode": "Passthrough"}),
        ("HTTPS", "internal-ca" | "le") => {
            listener["tls"] = json!({"options": {"gatewright.io/issuer": certificate}});
        }
        ("HTTPS", name) => listener["tls"] = json!({"certificateRefs": [{"name": name}]}),
        _ => {}
    }
    listener
}

fn listeners(specs: Vec<(&str, &str, &str)>, from: &str) -> Value {
    specs
        .into_iter()
        .enumerate()
        .map(|(index, spec)| listener_of(index, spec, from))
        .collect()
}

fn gateway() -> impl Strategy<Value = Object> {
    let parts = (
        pick(&["a", "a", "b"]),
        pick(&["plain", "plain", "redirecting"]),
        proptest::collection::vec(listener(), 1..4),
        pick(&["All", "Same"]),
        pick(&["All", "All", "None"]),
    );
    parts.prop_map(|(namespace, class, specs, routes, sets)| {
        object(json!({"apiVersion": GATEWAY, "kind": "Gateway",
            "metadata": {"namespace": namespace, "name": "g"},
            "spec": {"gatewayClassName": class, "listeners": listeners(specs, routes),
                "allowedListeners": {"namespaces": {"from": sets}}}}))
    })
}

fn listener_set() -> impl Strategy<Value = Object> {
    let parts = (
        pick(&["a", "b", "c"]),
        proptest::collection::vec(listener(), 1..3),
        pick(&["All", "Same"]),
    );
    parts.prop_map(|(namespace, specs, routes)| {
        object(json!({"apiVersion": GATEWAY, "kind": "ListenerSet",
            "metadata": {"namespace": namespace, "name": "s"},
            "spec": {"parentRef": {"name": "g", "namespace": "a"}, "listeners": listeners(specs, routes)}}))
    })
}

fn route() -> impl Strategy<Value = Object> {
    let parts = (
        pick(&[
            "HTTPRoute",
            "HTTPRoute",
            "HTTPRoute",
            "GRPCRoute",
            "TLSRoute",
            "TCPRoute",
        ]),
        pick(&["a", "b", "c"]),
        pick(&["r", "q"]),
        pick(&[
            ("Gateway", "a"),
            ("Gateway", "a"),
            ("Gateway", "b"),
            ("ListenerSet", "a"),
            ("ListenerSet", "b"),
            ("ListenerSet", "c"),
        ]),
        proptest::collection::vec(pick(&HOSTS), 0..3),
        pick(&["web", "web", "next", "missing", "redirect"]),
    );
    parts.prop_map(|(kind, namespace, name, (parent, of), hosts, service)| {
        let parent = json!({"kind": parent, "namespace": of,
            "name": if parent == "Gateway" { "g" } else { "s" }});
        let rule = match (kind, service) {
            ("HTTPRoute", "redirect") => json!({"filters": [{"type": "RequestRedirect",
                "requestRedirect": {"hostname": "elsewhere.org"}}]}),
            (_, "redirect") => json!({"backendRefs": [{"name": "web", "port": 80}]}),
            _ => json!({"backendRefs": [{"name": service, "port": 80}]}),
        };
        let mut spec = json!({"parentRefs": [parent], "rules": [rule]});
        let hosts: BTreeSet<&str> = hosts.into_iter().filter(|host| !host.is_empty()).collect();
        if kind != "TCPRoute" && !hosts.is_empty() {
            spec["hostnames"] = json!(hosts);
        } else if kind == "TLSRoute" {
            spec["hostnames"] = json!(["h.x.org"]);
        }
        object(json!({"apiVersion": GATEWAY, "kind": kind,
            "metadata": {"namespace": namespace, "name": name}, "spec": spec}))
    })
}

/// An object, and whether it is removed.
pub(crate) fn event() -> impl Strategy<Value = (Object, bool)> {
    let objects = prop_oneof![
        3 => gateway(),
        3 => listener_set(),
        8 => route(),
        1 => (pick(&["a", "b", "c"]), pick(&["one", "two"])).prop_map(|(namespace, serial)| secret(namespace, serial)),
    ];
    (objects, proptest::bool::weighted(0.2))
}

pub(crate) fn changed(events: Vec<(Object, bool)>) -> Change {
    let last: BTreeMap<ObjectKey, (Object, bool)> = events
        .into_iter()
        .map(|(object, gone)| (object.key(), (object, gone)))
        .collect();
    let mut change = Change::default();
    for (key, (object, gone)) in last {
        if gone {
            change.delete.insert(key);
        } else {
            change.put.push(object);
        }
    }
    change
}
