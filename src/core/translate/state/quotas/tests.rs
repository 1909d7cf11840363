//! Quotas of namespaces, by what a route's status says.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::*;
use crate::{Change, Engine, Settings, StatusBody};
use gatewright_objects::inputs::{Object, Secret};
use gatewright_objects::model::{Certificate, Hostname, PrivateKey};

mod access;
mod refused;
mod shared_tables;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

/// An installation with a class, and a Gateway of the platform with a listener of each protocol
/// that every namespace may use.
struct Told {
    engine: Engine,
}

impl Told {
    fn within(limits: Limits) -> Self {
        let mut told = Self {
            engine: Engine::new(Settings {
                limits,
                ..Settings::new("c", Vec::new())
            }),
        };
        told.put(
            json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "open"},
            "spec": {"controllerName": "c"}}),
        );
        let from = json!({"namespaces": {"from": "All"}});
        let listener = |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "port": port, "allowedRoutes": from});
        let mut tls = listener("tls", "TLS", 8443);
        tls["tls"] = json!({"mode": "Passthrough"});
        told.gateway("infra", "g", 1, json!([listener("http", "HTTP", 80), tls]));
        told
    }

    fn put(&mut self, value: Value) {
        let object = Object::parse(value).expect("an object");
        self.engine
            .apply(vec![Change::put(object)], SystemTime::UNIX_EPOCH);
    }

    fn gateway(&mut self, namespace: &str, name: &str, second: u32, listeners: Value) {
        self.put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"namespace": namespace, "name": name,
            "creationTimestamp": time(second)}, "spec": {"gatewayClassName": "open", "listeners": listeners}}));
    }

    /// Puts a route of a namespace, which is created in this second.
    fn route(&mut self, kind: &str, name: &str, second: u32, hostnames: &[&str], rules: Value) {
        let section = if kind == "TLSRoute" { "tls" } else { "http" };
        self.put(
            json!({"apiVersion": GATEWAY, "kind": kind, "metadata": {"namespace": "a", "name": name,
            "creationTimestamp": time(second)}, "spec": {"hostnames": hostnames, "rules": rules,
                "parentRefs": [{"name": "g", "namespace": "infra", "sectionName": section}]}}),
        );
    }

    /// Puts a Secret whose chain has so many KiB.
    fn secret(&mut self, name: &str, kib: usize) {
        let certificate = Certificate {
            leaf: [].as_slice().into(),
            issuers: "x".repeat(kib << 10).into(),
            key: PrivateKey::new(b"key"),
            names: vec![Hostname::any()],
            not_before: SystemTime::UNIX_EPOCH,
            not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(1000),
            issuer: Arc::from("test"),
        };
        let name = ObjectName::new("a", name);
        let secret = Secret::with_certificate(name, Arc::new(certificate));
        self.engine.apply(
            vec![Change::put(Object::Secret(secret))],
            SystemTime::UNIX_EPOCH,
        );
    }

    /// The message of a Gateway that is not accepted for a limit; empty for one that is accepted.
    fn told_gateway(&self, name: &str) -> String {
        let status = self
            .engine
            .status(&ObjectKey::new(Kind::Gateway, ObjectName::new("a", name)))
            .expect("a status");
        let StatusBody::Gateway(status) = status.body else {
            panic!("a Gateway's")
        };
        let limit = status
            .conditions
            .iter()
            .find(|one| one.reason == Reason::LimitReached);
        limit.map_or(String::new(), |one| one.message.clone())
    }

    fn remove(&mut self, kind: Kind, name: &str) {
        let key = ObjectKey::new(kind, ObjectName::new("a", name));
        self.engine
            .apply(vec![Change::delete(key)], SystemTime::UNIX_EPOCH);
    }

    /// The notes on an HTTPRoute that is accepted.
    fn noted(&self, name: &str) -> String {
        let status = self
            .engine
            .status(&ObjectKey::new(Kind::HTTPRoute, ObjectName::new("a", name)))
            .expect("a status");
        let StatusBody::Route(status) = status.body else {
            panic!("a route's")
        };
        let accepted = &status.parents.first().expect("a parent").1[0];
        assert_eq!(accepted.reason, Reason::Accepted, "{}", accepted.message);
        accepted.message.clone()
    }

    /// The message of a route that is not accepted for a limit; empty for one that is accepted.
    fn told(&self, kind: Kind, name: &str) -> String {
        let status = self
            .engine
            .status(&ObjectKey::new(kind, ObjectName::new("a", name)))
            .expect("a status");
        let StatusBody::Route(status) = status.body else {
            panic!("a route's")
        };
        let accepted = &status.parents.first().expect("a parent").1[0];
        match accepted.reason {
            Reason::Accepted => String::new(),
            Reason::LimitReached => accepted.message.clone(),
            other => panic!("{other:?}: {}", accepted.message),
        }
    }
}

fn time(second: u32) -> String {
    format!("2026-01-01T00:00:{second:02}Z")
}

fn backend(name: &str) -> Value {
    json!({"name": name, "port": 80})
}

/// A rule with so many matches and a filter that edits so many headers.
fn edits(matches: usize, edits: usize) -> Value {
    let matches: Vec<Value> = (0..matches)
        .map(|index| json!({"path": {"value": format!("/{index}")}}))
        .collect();
    let set: Vec<Value> = (0..edits)
        .map(|index| json!({"name": format!("x-{index}"), "value": "v"}))
        .collect();
    json!({"matches": matches, "backendRefs": [backend("web")],
        "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": set}}]})
}

#[test]
fn envoys_memory_counts_for_each_hostname_and_match_and_the_oldest_have_it() {
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            envoy_mib: 4,
            ..Limits::default().namespace
        },
        ..Limits::default()
    });
    for (index, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        let hosts = [&*format!("{name}1.org"), &format!("{name}2.org")];
        told.route(
            "HTTPRoute",
            name,
            u32::try_from(index).expect("few"),
            &hosts,
            json!([edits(28, 16)]),
        );
    }
    let names = ["a", "b", "c", "d", "e"];
    let refused = |told: &Told| {
        names
            .into_iter()
            .filter(|name| !told.told(Kind::HTTPRoute, name).is_empty())
            .collect()
    };
    let all: Vec<&str> = refused(&told);
    assert_eq!(all, ["e"]);
    let text = told.told(Kind::HTTPRoute, "e");
    assert!(
        text.contains("limits.namespace.envoyMib, 4 MiB of an Envoy's memory, this one needs "),
        "{text}"
    );
    told.remove(Kind::HTTPRoute, "a");
    assert_eq!(
        told.told(Kind::HTTPRoute, "e"),
        "",
        "a deleted route makes room"
    );
}

/// A rule with so many expressions that a long path is compared with to its end.
fn expressions(number: usize) -> Value {
    let matches: Vec<Value> = (0..number)
        .map(|at| json!({"path": {"type": "RegularExpression", "value": format!("/.*x{at}")}}))
        .collect();
    json!({"matches": matches, "backendRefs": [backend("web")]})
}

fn expect_refused(told: &Told, refused: &[&str]) {
    for name in ["a", "b", "c", "d"] {
        let text = told.told(Kind::HTTPRoute, name);
        assert_eq!(!text.is_empty(), refused.contains(&name), "{name}: {text}");
    }
}

/// Sets the labels of the namespace of routes.
fn label(told: &mut Told, labels: &Value) {
    told.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": labels}}));
}

#[test]
fn expressions_that_one_request_is_compared_with_count_for_each_hostname() {
    let mut told = Told::within(Limits::default());
    told.route("HTTPRoute", "a", 1, &["a.org"], json!([expressions(30)]));
    told.route(
        "HTTPRoute",
        "b",
        2,
        &["a.org", "b.org"],
        json!([expressions(30)]),
    );
    told.route("HTTPRoute", "c", 3, &["b.org"], json!([expressions(30)]));
    told.route("HTTPRoute", "d", 4, &["a.org"], json!([edits(1, 0)]));
    expect_refused(&told, &["b", "c", "d"]);
    let text = told.told(Kind::HTTPRoute, "b");
    assert!(
        text.contains(
            "limits.namespace.matchingMicros 10000 at hostname a.org, this one needs 5575"
        ),
        "{text}"
    );
    told.route("HTTPRoute", "a", 1, &["a.org"], json!([expressions(20)]));
    expect_refused(&told, &["c"]);
    told.remove(Kind::HTTPRoute, "b");
    told.route("HTTPRoute", "b", 2, &["b.org"], json!([expressions(60)]));
    expect_refused(&told, &["b"]);
    let text = told.told(Kind::HTTPRoute, "b");
    assert!(
        text.starts_with("a request may take 11150 microseconds to be compared with its matches"),
        "one that is too large for itself leaves room for others: {text}"
    );
    told.route("HTTPRoute", "b", 2, &["c.org"], json!([edits(64, 0)]));
    expect_refused(&told, &[]);
}

#[test]
fn a_namespace_may_be_allowed_requests_that_take_longer() {
    let mut told = Told::within(
        serde_json::from_value(
            json!({"overrides": [{"namespaces": {"matchLabels": {"tier": "gold"}},
            "limits": {"matchingMicros": 20_000}}]}),
        )
        .expect("limits"),
    );
    label(&mut told, &json!({}));
    for (second, name) in [(1, "a"), (2, "b")] {
        told.route(
            "HTTPRoute",
            name,
            second,
            &["a.org"],
            json!([expressions(50)]),
        );
    }
    assert_ne!(told.told(Kind::HTTPRoute, "b"), "", "10 ms are too few");
    label(&mut told, &json!({"tier": "gold"}));
    assert_eq!(told.told(Kind::HTTPRoute, "b"), "", "20 ms are enough");
    told.route(
        "HTTPRoute",
        "c",
        3,
        &["c.org"],
        json!([expressions(64), expressions(30)]),
    );
    assert_eq!(
        told.told(Kind::HTTPRoute, "c"),
        "",
        "at another hostname as well"
    );
    label(&mut told, &json!({}));
    assert_ne!(told.told(Kind::HTTPRoute, "b"), "", "10 ms again");
    assert_ne!(told.told(Kind::HTTPRoute, "c"), "", "10 ms again");
}

#[test]
fn a_route_that_is_too_large_for_itself_leaves_room_for_the_others_of_its_namespace() {
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            envoy_mib: 4,
            ..Limits::default().namespace
        },
        ..Limits::default()
    });
    told.route("HTTPRoute", "large", 0, &["a.org"], json!([edits(64, 16)]));
    told.route("HTTPRoute", "small", 1, &["b.org"], json!([edits(1, 16)]));
    let text = told.told(Kind::HTTPRoute, "large");
    assert!(
        text.contains(
            "one object may need 1 MiB of an Envoy's memory, a quarter of limits.namespace.envoyMib"
        ),
        "{text}"
    );
    assert_eq!(told.told(Kind::HTTPRoute, "small"), "");
    told.route("HTTPRoute", "large", 0, &["a.org"], json!([edits(32, 16)]));
    assert_eq!(
        told.told(Kind::HTTPRoute, "large"),
        "",
        "it may be made smaller"
    );
}

#[test]
fn a_label_of_the_namespace_gives_it_another_quota() {
    let gold = json!({"namespaces": {"matchLabels": {"tier": "gold"}}, "limits": {"envoyMib": 16}});
    let gold = serde_json::from_value(gold).expect("an override");
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            envoy_mib: 4,
            ..Limits::default().namespace
        },
        overrides: vec![gold],
        ..Limits::default()
    });
    told.route("HTTPRoute", "large", 0, &["a.org"], json!([edits(64, 16)]));
    let namespace = |labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": labels}});
    told.put(namespace(json!({"tier": "gold"})));
    assert_eq!(told.told(Kind::HTTPRoute, "large"), "");
    told.put(namespace(json!({})));
    assert_ne!(
        told.told(Kind::HTTPRoute, "large"),
        "",
        "without the label it has the quota of all namespaces"
    );
}

#[test]
fn every_listener_has_the_matches_of_a_route_again() {
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            envoy_mib: 64,
            ..Limits::default().namespace
        },
        ..Limits::default()
    });
    let listener = |index: u16| json!({"name": format!("l{index}"), "protocol": "HTTP", "port": 80, "hostname": format!("h{index}.org")});
    let put = |told: &mut Told| {
        told.put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"namespace": "a", "name": "r"},
            "spec": {"rules": [edits(64, 4)], "parentRefs": [{"name": "own"}]}}));
    };
    told.gateway("a", "own", 0, (0..8).map(listener).collect());
    put(&mut told);
    assert_eq!(told.told(Kind::HTTPRoute, "r"), "");
    told.gateway("a", "own", 0, (0..64).map(listener).collect());
    assert!(
        told.told(Kind::HTTPRoute, "r")
            .contains("one object may need 16 MiB"),
        "64 listeners, 64 matches each"
    );
}

#[test]
fn a_cluster_is_counted_once_and_its_oldest_user_pays_for_it() {
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            clusters: 2,
            ..Limits::default().namespace
        },
        ..Limits::default()
    });
    told.route(
        "HTTPRoute",
        "first",
        0,
        &["a.org"],
        json!([{"backendRefs": [backend("x"), backend("y")]}]),
    );
    told.route(
        "HTTPRoute",
        "same",
        1,
        &["b.org"],
        json!([{"backendRefs": [backend("y"), backend("x")]}]),
    );
    told.route(
        "HTTPRoute",
        "third",
        2,
        &["c.org"],
        json!([{"backendRefs": [backend("z")]}]),
    );
    assert_eq!(told.told(Kind::HTTPRoute, "same"), "");
    let text = told.told(Kind::HTTPRoute, "third");
    assert!(
        text.contains("limits.namespace.clusters, 2 clusters, this one needs 1 cluster:"),
        "{text}"
    );
    // Who shares the clusters of a route that is refused would have Envoys get them.
    told.route(
        "HTTPRoute",
        "fourth",
        3,
        &["d.org"],
        json!([{"backendRefs": [backend("z")]}]),
    );
    assert_ne!(told.told(Kind::HTTPRoute, "fourth"), "");
    told.remove(Kind::HTTPRoute, "first");
    assert_ne!(
        told.told(Kind::HTTPRoute, "third"),
        "",
        "the clusters of the first are still in use"
    );
    told.remove(Kind::HTTPRoute, "same");
    assert_eq!(told.told(Kind::HTTPRoute, "third"), "");
    assert_eq!(told.told(Kind::HTTPRoute, "fourth"), "");
}

#[test]
fn a_weighted_hostname_that_is_passed_through_has_a_filter_chain() {
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            filter_chains: 2,
            ..Limits::default().namespace
        },
        ..Limits::default()
    });
    let weighted = json!([{"backendRefs": [backend("x"), backend("y")]}]);
    told.route("TLSRoute", "two", 0, &["a.org", "b.org"], weighted.clone());
    told.route(
        "TLSRoute",
        "single",
        1,
        &["c.org"],
        json!([{"backendRefs": [backend("x")]}]),
    );
    told.route("TLSRoute", "third", 2, &["d.org"], weighted);
    assert_eq!(told.told(Kind::TLSRoute, "two"), "");
    assert_eq!(told.told(Kind::TLSRoute, "single"), "");
    let text = told.told(Kind::TLSRoute, "third");
    assert!(
        text.contains("limits.namespace.filterChains, 2 filter chains, this one needs 1"),
        "{text}"
    );
}

#[test]
fn routes_have_what_gateways_leave() {
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            envoy_mib: 4,
            ..Limits::default().namespace
        },
        ..Limits::default()
    });
    told.route("HTTPRoute", "r", 0, &["a.org"], json!([edits(32, 16)]));
    let listener =
        |index: u16| json!({"name": format!("l{index}"), "protocol": "HTTP", "port": 9000 + index});
    told.gateway("a", "own", 1, (0..8).map(listener).collect());
    assert_eq!(told.told(Kind::HTTPRoute, "r"), "");
    told.gateway("a", "own", 1, (0..15).map(listener).collect());
    assert_ne!(
        told.told(Kind::HTTPRoute, "r"),
        "",
        "the Gateway takes the room, though it is younger"
    );
}

#[test]
fn a_namespace_owns_as_many_hostnames_as_its_part_of_the_record_has() {
    let tiers = json!([
        {"namespaces": {"matchLabels": {"tier": "gold"}}, "limits": {"recordKib": 2}},
        {"namespaces": {"matchLabels": {"tier": "none"}}, "limits": {"recordKib": 0}},
    ]);
    let mut limits = Limits {
        overrides: serde_json::from_value(tiers).expect("overrides"),
        ..Limits::default()
    };
    limits.namespace.record_kib = 1;
    let mut told = Told::within(limits);
    let forward = json!([{"backendRefs": [backend("x")]}]);
    let names = ["a", "b", "c", "d", "e", "f"];
    for (second, name) in (10..).zip(names) {
        told.route(
            "HTTPRoute",
            name,
            second,
            &[&format!("{name}.org")],
            forward.clone(),
        );
    }
    for name in &names[..5] {
        assert_eq!(told.told(Kind::HTTPRoute, name), "", "{name}");
    }
    let text = told.told(Kind::HTTPRoute, "f");
    let expected = "hostname f.org is not recorded as this namespace's: the hostnames of namespace a up to this one, \
                    those that it has first, exceed limits.namespace.recordKib, 1 KiB of the record of ownership: \
                    fewer or shorter hostnames need less";
    assert_eq!(text, expected);
    let uses = told.engine.quota_uses();
    let of_a = uses.iter().find(|of| *of.namespace == *"a").expect("a");
    assert!((800..=1024).contains(&of_a.used.record), "{of_a:?}");

    told.route("HTTPRoute", "older", 0, &["g.org"], forward.clone());
    assert_ne!(
        told.told(Kind::HTTPRoute, "older"),
        "",
        "what is recorded stays"
    );
    assert_eq!(told.told(Kind::HTTPRoute, "e"), "", "it was there before");
    told.remove(Kind::HTTPRoute, "a");
    assert_eq!(told.told(Kind::HTTPRoute, "older"), "", "there is room");
    assert_ne!(
        told.told(Kind::HTTPRoute, "f"),
        "",
        "the older one is first"
    );

    let label = |tier: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a",
            "labels": {"tier": tier}}})
    };
    told.put(label("gold"));
    assert_eq!(told.told(Kind::HTTPRoute, "f"), "", "a label allows more");
    told.put(label("none"));
    for name in ["b", "older", "f"] {
        let text = told.told(Kind::HTTPRoute, name);
        assert!(text.contains(", 0 KiB"), "{name}: {text}");
    }
}

#[test]
fn a_chain_counts_for_every_hostname_that_is_served_with_it() {
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            envoy_mib: 12,
            ..NamespaceLimits::default()
        },
        ..Limits::default()
    });
    let listeners: Vec<Value> = (0..64)
        .map(|index| json!({"name": format!("l{index}"), "protocol": "HTTPS", "port": 443, "hostname": format!("h{index}.org"),
            "tls": {"certificateRefs": [{"name": "cert"}]}}))
        .collect();
    told.gateway("a", "few", 0, json!(listeners[..16]));
    told.gateway("a", "many", 1, json!(listeners));
    assert_eq!(
        told.told_gateway("many"),
        "",
        "before there is a certificate"
    );
    told.secret("cert", 2);
    assert_eq!(
        told.told_gateway("many"),
        "",
        "a usual certificate changes nothing"
    );
    told.secret("cert", 29);
    assert_eq!(told.told_gateway("few"), "");
    let text = told.told_gateway("many");
    assert!(
        text.contains("limits.namespace.envoyMib, 12 MiB of an Envoy's memory"),
        "80 times 170 KB: {text}"
    );
}

#[test]
fn the_chain_of_a_client_certificate_counts_for_every_cluster_that_has_it() {
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            envoy_mib: 16,
            ..NamespaceLimits::default()
        },
        ..Limits::default()
    });
    for index in 0..9 {
        told.put(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": format!("s{index}")},
            "spec": {"ports": [{"port": 80}]}}));
    }
    let targets: Vec<Value> = (0..9)
        .map(|index| json!({"group": "", "kind": "Service", "name": format!("s{index}")}))
        .collect();
    told.put(json!({"apiVersion": GATEWAY, "kind": "BackendTLSPolicy", "metadata": {"namespace": "a", "name": "p"},
        "spec": {"targetRefs": targets, "validation": {"hostname": "web.internal", "wellKnownCACertificates": "System"}}}));
    told.put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"namespace": "a", "name": "own"},
        "spec": {"gatewayClassName": "open", "listeners": [{"name": "l", "protocol": "HTTP", "port": 80}],
            "tls": {"backend": {"clientCertificateRef": {"name": "client"}}}}}));
    let backends: Vec<Value> = (0..9).map(|index| backend(&format!("s{index}"))).collect();
    told.put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"namespace": "a", "name": "r"},
        "spec": {"rules": [{"backendRefs": backends}], "parentRefs": [{"name": "own"}]}}));
    told.secret("client", 2);
    assert_eq!(told.told(Kind::HTTPRoute, "r"), "");
    told.secret("client", 29);
    let text = told.told(Kind::HTTPRoute, "r");
    assert!(
        text.contains("one object may need 4 MiB"),
        "9 times 510 KB: {text}"
    );
    told.secret("client", 2);
    assert_eq!(
        told.told(Kind::HTTPRoute, "r"),
        "",
        "a smaller one is served again"
    );
}

#[test]
fn routes_beyond_the_limit_are_served_and_not_counted_by_themselves() {
    let mut limits = Limits::default();
    limits.namespace.counted_routes = 1;
    let mut told = Told::within(limits.clone());
    told.engine = Engine::new(Settings {
        limits,
        named_hosts: true,
        ..Settings::new("c", Vec::new())
    });
    told.put(
        json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "open"},
        "spec": {"controllerName": "c"}}),
    );
    let from = json!({"namespaces": {"from": "All"}});
    let http = json!({"name": "http", "protocol": "HTTP", "port": 80, "allowedRoutes": from});
    told.gateway("infra", "g", 1, json!([http]));
    for (name, second) in [("old", 1), ("young", 2)] {
        told.put(
            json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"namespace": "a", "name": name,
            "creationTimestamp": time(second), "annotations": {"gatewright.io/traffic-metrics": "Route"}},
            "spec": {"hostnames": [format!("{name}.example.org")], "rules": [edits(1, 1)],
                "parentRefs": [{"name": "g", "namespace": "infra"}]}}),
        );
    }
    assert_eq!(told.noted("old"), "", "it is counted");
    let note = told.noted("young");
    assert!(
        note.contains("limits.namespace.countedRoutes 1"),
        "it is told: {note}"
    );
    told.remove(Kind::HTTPRoute, "old");
    assert_eq!(told.noted("young"), "", "there is room now");
}
