//! Tests of target ports that several Gateways want.

use super::*;
use gatewright_objects::limits::NamespaceLimits;

/// The four cases: two Gateways on two Services or on one, with two target ports or with one.
#[test]
fn gateways_that_would_meet_on_a_target_port_are_told_and_the_first_is_served_on() {
    fn have(one: &str, other: &str) -> String {
        format!(
            "PortUnavailable: {one} of Envoys, which {other} has: give it another targetPort, or take another port"
        )
    }
    for (second, port, target, told) in [
        // Two Services and two target ports; one Service and two target ports.
        ("two", 80, 20_002, "True".to_owned()),
        ("one", 81, 20_002, "True".to_owned()),
        // Two Services and one target port; one Service and one target port, by one of its ports or
        // by two.
        (
            "two",
            80,
            20_001,
            have(
                "port 80 of Service a/two leads to port 20001",
                "Gateway a/y",
            ),
        ),
        (
            "one",
            80,
            20_001,
            have(
                "port 80 of Service a/one leads to port 20001",
                "Gateway a/y",
            ),
        ),
        (
            "one",
            81,
            20_001,
            have(
                "port 81 of Service a/one leads to port 20001",
                "Gateway a/y",
            ),
        ),
    ] {
        let mut site = Site::new();
        site.put(service(
            "a",
            "one",
            &[(80, json!(20_001)), (81, json!(target))],
        ));
        site.put(service("a", "two", &[(80, json!(target))]));
        // The first one is younger.
        site.put_gateway_on("a", "y", 9, "one", &[80]);
        assert!(site.write("a", "y"));
        site.put_gateway_on("a", "x", 1, second, &[port]);
        assert_eq!(
            site.listeners("a", "x"),
            [told.as_str()],
            "{second} {port} {target}"
        );
        let is_served = told == "True";
        assert_eq!(
            site.write("a", "x"),
            is_served,
            "nothing leads to what is another's"
        );
        assert_eq!(!site.served("a", "x").is_empty(), is_served);
        assert_eq!(site.served("a", "y"), [(80, 20_001)], "it goes on unharmed");
        assert_eq!(site.told("a", "y"), ["True", "True"]);
        // After the first and its slices are deleted, the other gets the port.
        site.delete(Kind::Gateway, "a", "y");
        if !is_served {
            assert_eq!(
                site.listeners("a", "x"),
                [told.as_str()],
                "slices of ours still lead there"
            );
        }
        site.delete(Kind::EndpointSlice, "a", "y-one-v4");
        assert_eq!(site.listeners("a", "x"), ["True"]);
        assert!(site.write("a", "x"));
        assert_eq!(site.served("a", "x"), [(port, target)]);
    }
}

#[test]
fn of_gateways_that_come_together_the_older_has_the_target_port_and_others_are_not_named() {
    let mut site = Site::new();
    for (namespace, created) in [("a", 5), ("b", 3)] {
        site.put(service(namespace, "web", &[(80, json!(20_001))]));
        site.put_gateway_on(namespace, "edge", created, "web", &[80]);
    }
    assert_eq!(site.led("b", "edge"), ["n80=20001"]);
    let told = "PortUnavailable: port 80 of Service a/web leads to port 20001 of Envoys, which a Gateway of another \
                namespace has: give it another targetPort, or take another port";
    assert_eq!(site.listeners("a", "edge"), [told]);
    assert!(site.led("a", "edge").is_empty());
    // Another target port repairs it, and the other Gateway is not affected.
    site.write("b", "edge");
    site.put(service("a", "web", &[(80, json!(20_002))]));
    assert!(site.write("a", "edge"));
    assert_eq!(
        site.served("a", "edge"),
        vec![(80, 20_002)],
        "the older Gateway has the next free port"
    );
    assert_eq!(
        site.served("b", "edge"),
        vec![(80, 20_001)],
        "the other one has its own"
    );
    // A Gateway with a port keeps it, even against an older one.
    site.put(service("b", "web", &[(80, json!(20_002))]));
    assert!(site.listeners("b", "edge")[0].starts_with("PortUnavailable"));
    assert!(
        !site.write("b", "edge"),
        "and what led there before does no more"
    );
    assert_eq!(
        site.served("a", "edge"),
        vec![(80, 20_002)],
        "the Gateway is served"
    );
    assert_eq!(site.served("b", "edge"), vec![], "the other one is not");
}

/// Nobody takes all ports of the Envoys: those of a namespace are limited, and another namespace
/// gets the next one.
#[test]
fn a_namespace_gets_as_many_target_ports_as_the_limit_says_and_no_more() {
    let mut site = Site::within(Limits {
        namespace: NamespaceLimits {
            ports: 2,
            ..NamespaceLimits::default()
        },
        ..Limits::default()
    });
    let ports: Vec<(u16, Value)> = (0..3).map(|n| (80 + n, json!(20_001 + n))).collect();
    site.put(service("a", "web", &ports));
    for (name, created, port) in [("one", 1, 80), ("two", 2, 81), ("three", 3, 82)] {
        site.put_gateway_on("a", name, created, "web", &[port]);
    }
    assert!(site.write("a", "one") && site.write("a", "two"));
    assert!(
        site.told("a", "three")[0].contains("limits.namespace.ports 2"),
        "{:?}",
        site.told("a", "three")
    );
    site.put(service("b", "web", &[(80, json!(20_003))]));
    site.put_gateway_on("b", "edge", 4, "web", &[80]);
    assert!(site.write("b", "edge"));
    assert_eq!(site.served("b", "edge"), [(80, 20_003)]);
    // With one Gateway less the next has its turn, and a port that somebody else has is not taken.
    site.delete(Kind::Gateway, "a", "one");
    assert!(
        site.listeners("a", "three")[0].starts_with("PortUnavailable"),
        "{:?}",
        site.listeners("a", "three")
    );
    assert_eq!(site.served("b", "edge"), [(80, 20_003)]);
}

#[test]
fn two_ports_of_a_service_are_never_merged() {
    let mut site = Site::new();
    site.put(service(
        "a",
        "web",
        &[(80, json!(20_001)), (81, json!(20_001))],
    ));
    site.put_gateway_on("a", "edge", 0, "web", &[80, 81]);
    let told = "PortUnavailable: port 81 of Service a/web leads to port 20001 of Envoys, as port 80 does, at which this \
                Gateway has listeners: give it another targetPort";
    assert_eq!(site.listeners("a", "edge"), ["True", told]);
    assert_eq!(site.led("a", "edge"), ["n80=20001"]);
    site.write("a", "edge");
    assert_eq!(site.served("a", "edge"), [(80, 20_001)]);
    // Alone it has the port.
    site.put(gateway("a", "edge", 0, &[81]));
    site.write("a", "edge");
    assert_eq!(
        site.served("a", "edge"),
        vec![(81, 20_001)],
        "the port has its target"
    );
    assert_eq!(
        site.listeners("a", "edge"),
        vec!["True".to_owned()],
        "the listener is programmed"
    );
}

/// A Gateway whose Service we make yields: another port is chosen for it.
#[test]
fn no_port_is_chosen_for_a_service_of_ours_that_somebody_stands_on() {
    let mut site = Site::new();
    site.put(gateway("b", "made", 0, &[80]));
    site.put(parameters("b", "made", json!({})));
    fn chosen(site: &Site) -> u16 {
        match site.engine.services().get(&ObjectName::new("b", "made")) {
            Some(ServiceIntent::Wanted(desired)) => desired.targets[&TransportPort::tcp(80)],
            other => panic!("{other:?}"),
        }
    }
    let first = chosen(&site);
    site.put(service("a", "web", &[(80, json!(first))]));
    site.put_gateway_on("a", "edge", 9, "web", &[80]);
    assert_ne!(chosen(&site), first, "it is not recorded yet");
    site.delete(Kind::Gateway, "a", "edge");

    // A port that is recorded in a Service of ours belongs to that Gateway.
    fn ours(target: u16) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "b", "name": "made-g", "uid": "u",
                "labels": {MANAGED_BY: MANAGER}, "annotations": {"gatewright.io/gateway": "made"},
                "ownerReferences": [{"apiVersion": GATEWAY, "kind": "Gateway", "name": "made", "uid": "u", "controller": true}]},
            "spec": {"type": "LoadBalancer", "ports": [{"name": "p80", "port": 80, "targetPort": target}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}})
    }
    site.put(ours(first));
    assert_eq!(site.served("b", "made"), [(80, first)]);
    site.put_gateway_on("a", "edge", 9, "web", &[80]);
    assert!(site.listeners("a", "edge")[0].contains("a Gateway of another namespace has"));
    assert!(!site.write("a", "edge"));
    // A tenant who can write Services takes no port by that.
    site.put(ours(first + 1));
    assert!(site.write("a", "edge"));
    site.put(ours(first));
    assert_eq!(
        site.served("a", "edge"),
        vec![(80, first)],
        "the named Service leads to its Gateway"
    );
    assert_eq!(site.served("b", "made"), vec![], "the other Gateway waits");
    assert_ne!(chosen(&site), first);

    // Nor does one who can write slices, but may not stand on Services: its slices then have no
    // effect.
    site.put(parameters("a", "edge", json!({})));
    assert_eq!(
        site.served("a", "edge"),
        vec![],
        "nobody stands on the Service any more"
    );
    assert_eq!(
        site.served("b", "made"),
        vec![(80, first)],
        "the other Gateway has its port"
    );
    site.put(service("c", "web", &[(80, json!(first))]));
    site.put_gateway_on("c", "edge", 5, "web", &[80]);
    assert!(
        site.listeners("c", "edge")[0].starts_with("PortUnavailable"),
        "slices of ours lead there still"
    );
}
