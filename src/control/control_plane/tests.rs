mod explained;
mod hosts;
mod losses;

use serde_json::json;
use xds::View;

use super::*;
use gatewright_core::inputs::{Object, Secret};
use gatewright_core::model::{Certificate, EnvoyFleet, Hostname, PrivateKey};
use gatewright_core::translate::{DedicatedEnvoys, Fleet, Question};

fn live() -> ControlPlane {
    let settings = Settings::new("c", vec![[127, 0, 0, 1].into()]);
    let mut live = ControlPlane::in_cluster(
        settings,
        tenancy::Settings::default(),
        Cache::new(),
        View::new("v"),
    );
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "g"}, "spec": {"controllerName": "c"}});
    put(&mut live, class);
    live
}

pub(super) fn put(live: &mut ControlPlane, value: Value) {
    apply(live, Change::put(Object::parse(value).expect("an object")));
}

fn apply(live: &mut ControlPlane, change: Change) {
    let record = &mut |_: &Outcome| Ok::<_, std::convert::Infallible>(());
    let _ = live
        .apply(
            vec![change],
            Vec::new(),
            record,
            SystemTime::UNIX_EPOCH,
            Duration::ZERO,
        )
        .expect("it is recorded");
}

#[test]
fn a_silent_envoy_that_others_have_overtaken_is_not_waited_for() {
    let (mut live, key) = (
        live(),
        ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge")),
    );
    put(&mut live, gateway(80));
    let newest = live.publication();
    let second = Duration::from_secs;
    envoys(&mut live, &[newest, 0]);
    let _ = live.acknowledgement_events(second(1));
    live.take_touched();
    live.evaluate_status(&key);
    assert!(
        !live.acknowledgement(&key).are_complete(),
        "it is waited for at first"
    );
    assert!(!live.loses_patience(second(30)));
    assert!(live.loses_patience(second(31)));
    let _ = live.acknowledgement_events(second(31));
    assert!(!live.loses_patience(second(40)), "that is done");
    assert!(live.take_touched().contains(&key), "its status changes");
    let acks = live.acknowledgement(&key);
    assert!(acks.are_complete(), "{acks:?}");
    assert!(
        acks.text()
            .contains("envoy-1 lacks for long what others have"),
        "{}",
        acks.text()
    );
    envoys(&mut live, &[newest, newest]);
    let _ = live.acknowledgement_events(second(41));
    assert!(
        live.take_touched().contains(&key),
        "it has caught up, and the status says so"
    );
    assert_eq!(
        live.acknowledgement(&key).text(),
        "acknowledged by 2 of 2 Envoys"
    );
}

fn gateway(port: u16) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "a"}, "spec": {"gatewayClassName": "g",
            "listeners": [{"name": "http", "protocol": "HTTP", "port": port}]}})
}

fn envoys(live: &mut ControlPlane, acknowledged: &[Generation]) {
    let nodes: Vec<_> = acknowledged
        .iter()
        .enumerate()
        .map(|(number, acknowledged)| NodeProgress {
            node: Arc::from(format!("envoy-{number}")),
            identity: Arc::from("fleet"),
            acknowledged: *acknowledged,
        })
        .collect();
    live.set_others(live.views.each(|_| nodes.clone()), Vec::new());
}

#[test]
fn statuses_are_evaluated_again_when_a_late_envoy_has_acknowledged() {
    let (mut live, key) = (
        live(),
        ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge")),
    );
    put(&mut live, gateway(80));
    let newest = live.publication();
    envoys(&mut live, &[newest]);
    assert!(live.take_touched().contains(&key));
    assert!(live.take_touched().is_empty(), "all is said");
    envoys(&mut live, &[newest, 0]);
    assert!(live.take_touched().contains(&key));
    live.evaluate_status(&key);
    assert!(live.take_touched().is_empty());
    envoys(&mut live, &[newest, newest]);
    assert!(live.take_touched().contains(&key));
    live.evaluate_status(&key);
    assert!(live.take_touched().is_empty());
}

#[test]
fn nothing_is_kept_of_a_gateway_that_is_gone() {
    let (mut live, key) = (
        live(),
        ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge")),
    );
    put(&mut live, gateway(80));
    assert!(
        live.published.contains_key(&key.name) && live.acks.awaited().any(|name| *name == key.name)
    );
    apply(&mut live, Change::delete(key.clone()));
    assert!(live.published.is_empty() && live.acks.awaited().next().is_none());
    assert!(live.since.keys().all(|(object, _)| *object != key));
}

#[test]
fn the_owner_of_a_refused_resource_is_looked_up_once_until_a_change() {
    let (mut live, key) = (
        live(),
        ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge")),
    );
    put(&mut live, gateway(80));
    let rejected = Rejection {
        view: View::new("v"),
        node: Arc::from("envoy"),
        kind: xds::Kind::Listener,
        name: Arc::from("a/edge:80"),
        part: None,
        version: Arc::from("1"),
        text: Arc::from("no room"),
    };
    live.set_others(live.views.each(|_| Vec::new()), vec![rejected]);
    let first = live.fleet().rejected;
    assert_eq!(first.listeners.len(), 1, "{first:?}");
    live.evaluate_status(&key);
    assert!(Arc::ptr_eq(&first, &live.fleet().rejected));
    put(&mut live, gateway(81));
    assert!(live.fleet().rejected.listeners.is_empty());
}

#[test]
fn a_refusal_is_told_once_with_the_object_that_it_is_about() {
    let mut live = live();
    let mut open = gateway(80);
    open["spec"]["listeners"][0]["allowedRoutes"] = json!({"namespaces": {"from": "All"}});
    put(&mut live, open);
    put(
        &mut live,
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "shop", "namespace": "b"}, "spec": {"parentRefs": [{"name": "edge", "namespace": "a"}],
                "hostnames": ["a.example.org"]}}),
    );
    fn rejected(version: &str, kind: xds::Kind, name: &str, part: Option<xds::Part>) -> Rejection {
        Rejection {
            view: View::new("v"),
            node: Arc::from("envoy"),
            kind,
            name: Arc::from(name),
            part,
            version: Arc::from(version),
            text: Arc::from("no such filter"),
        }
    }
    let route = xds::Part {
        virtual_host: Arc::from("a.example.org"),
        route: Arc::from("httproute/b/shop/0/0"),
    };
    fn all(version: &str, route: &xds::Part) -> Vec<Rejection> {
        vec![
            rejected(version, xds::Kind::Listener, "a/edge:80", None),
            rejected(version, xds::Kind::Route, "a/edge:80", Some(route.clone())),
            rejected(version, xds::Kind::Cluster, "nobody's", None),
        ]
    }
    fn told(
        version: &str,
        live: &mut ControlPlane,
        route: &xds::Part,
    ) -> Vec<(String, Option<String>)> {
        live.set_others(live.views.each(|_| Vec::new()), all(version, route));
        let events = live.acknowledgement_events(Duration::ZERO);
        let rejected = events.iter().filter_map(|event| match event {
            Event::Rejected { kind, object, .. } => {
                Some((kind.clone(), object.as_ref().map(ToString::to_string)))
            }
            _ => None,
        });
        rejected.collect()
    }
    let mut first = told("1", &mut live, &route);
    first.sort();
    fn object(kind: &str, object: Option<&str>) -> (String, Option<String>) {
        (kind.to_owned(), object.map(str::to_owned))
    }
    let wanted = [
        object("Cluster", None),
        object("Listener", Some("gateway a/edge")),
        object("Route", Some("httproute b/shop")),
    ];
    assert_eq!(first, wanted);
    assert_eq!(told("2", &mut live, &route), [], "the Envoy says so again");
}

#[test]
fn a_bind_error_says_what_to_do_and_is_over_when_the_same_envoy_accepts_the_listener() {
    let mut live = live();
    put(&mut live, gateway(80));
    let rejected = Rejection {
        view: View::new("v"),
        node: Arc::from("envoy"),
        kind: xds::Kind::Listener,
        name: Arc::from("a/edge:80"),
        part: None,
        version: Arc::from("1"),
        text: Arc::from("cannot bind '0.0.0.0:80': Address already in use"),
    };
    let node = NodeProgress {
        node: Arc::from("envoy"),
        identity: Arc::from("uid:0"),
        acknowledged: 0,
    };
    fn told(
        live: &mut ControlPlane,
        nodes: &[NodeProgress],
        rejected: &[Rejection],
    ) -> Vec<String> {
        live.set_others(live.views.each(|_| nodes.to_vec()), rejected.to_vec());
        let events = live.acknowledgement_events(Duration::ZERO);
        events
            .iter()
            .filter(|event| matches!(event, Event::Rejected { .. } | Event::Bound { .. }))
            .map(ToString::to_string)
            .collect()
    }
    let (connected, rejected) = (std::slice::from_ref(&node), std::slice::from_ref(&rejected));
    let first = told(&mut live, connected, rejected);
    assert!(
        matches!(&first[..], [one] if one.contains("ss -antup 'sport = :80'")),
        "{first:?}"
    );
    let status = live
        .fleet()
        .rejected
        .listeners
        .values()
        .next()
        .cloned()
        .unwrap_or_default();
    assert!(
        status.contains("Address already in use; another process has the port"),
        "{status}"
    );

    assert_eq!(
        told(&mut live, &[], &[]),
        Vec::<String>::new(),
        "the Envoy has ended"
    );
    assert_eq!(told(&mut live, connected, rejected).len(), 1);
    let over = told(&mut live, connected, &[]);
    assert_eq!(
        over,
        ["envoy \"envoy\" has bound the address of Listener a/edge:80 and serves it"]
    );
    assert_eq!(told(&mut live, connected, &[]), Vec::<String>::new());

    assert_eq!(told(&mut live, connected, rejected).len(), 1);
    put(&mut live, gateway(81));
    assert_eq!(
        told(&mut live, connected, &[]),
        Vec::<String>::new(),
        "the listener is gone"
    );
}

#[test]
fn unacknowledged_publications_are_not_remembered_forever() {
    let mut live = live();
    for number in 0..ANNOUNCED + 10 {
        put(&mut live, gateway(if number % 2 == 0 { 80 } else { 81 }));
    }
    assert_eq!(live.waiting.len(), ANNOUNCED);
}

#[test]
fn a_condition_is_told_once_for_as_long_as_it_stands() {
    let mut live = live();
    fn events(value: Value, live: &mut ControlPlane) -> usize {
        let record = &mut |_: &Outcome| Ok::<_, std::convert::Infallible>(());
        let change = vec![Change::put(Object::parse(value).expect("an object"))];
        let Effects { events, .. } = live
            .apply(
                change,
                Vec::new(),
                record,
                SystemTime::UNIX_EPOCH,
                Duration::ZERO,
            )
            .expect("it is recorded");
        events
            .iter()
            .filter(|event| event.to_string().contains("UnsupportedProtocol"))
            .count()
    }
    fn gateway(protocol: &str, port: u16) -> Value {
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": "a"}, "spec": {"gatewayClassName": "g",
                "listeners": [{"name": "x", "protocol": protocol, "port": port}]}})
    }
    let told = [("SCTP", 80), ("SCTP", 81), ("HTTP", 81), ("SCTP", 81)]
        .map(|(protocol, port)| events(gateway(protocol, port), &mut live));
    assert_eq!(
        told.map(|count| count.min(1)),
        [1, 0, 0, 1],
        "told, told already, good, told again"
    );
}

#[test]
fn the_status_of_a_tenantgateway_has_the_generation_that_was_evaluated() {
    let mut live = live();
    let tenant = json!({"apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway",
        "metadata": {"name": "edge", "namespace": "a", "uid": "u", "generation": 7}, "spec": {"apex": "not a name"}});
    let change = vec![Change::put(Object::parse(tenant).expect("an object"))];
    let record = &mut |_: &Outcome| Ok::<_, std::convert::Infallible>(());
    let Effects { events, .. } = live
        .apply(
            change,
            Vec::new(),
            record,
            SystemTime::UNIX_EPOCH,
            Duration::ZERO,
        )
        .expect("it is recorded");
    let generations = events.iter().filter_map(|event| match event {
        Event::Condition {
            object,
            generation,
            condition,
            ..
        } if object.kind == Kind::TenantGateway => Some((condition.as_str(), *generation)),
        _ => None,
    });
    assert_eq!(generations.collect::<Vec<_>>(), [("Ready", 7)]);
}

/// A control plane with a view and a class for each fleet.
fn apart() -> ControlPlane {
    fn envoys(name: &str) -> ObjectName {
        ObjectName::new("ours", name)
    }
    let settings = Settings {
        fleet: Fleet::Shared,
        envoys: Some(envoys("envoy")),
        dedicated: DedicatedEnvoys::Apart(envoys("envoy-dedicated")),
        ..Settings::new("c", vec![[127, 0, 0, 1].into()])
    };
    let views = FleetViews::apart();
    let mut live =
        ControlPlane::in_cluster(settings, tenancy::Settings::default(), Cache::new(), views);
    let reference = json!({"group": "gatewright.io", "kind": "GatewayParameters", "name": "p", "namespace": "a"});
    for (name, reference) in [("shared", Value::Null), ("own", reference)] {
        put(
            &mut live,
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": name},
                "spec": {"controllerName": "c", "parametersRef": reference}}),
        );
    }
    put(&mut live, parameters("Dedicated"));
    put(
        &mut live,
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"ports": [{"port": 80}]}}),
    );
    for (namespace, class) in [("shop", "shared"), ("bank", "own")] {
        put(
            &mut live,
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": {"name": "edge", "namespace": namespace}, "spec": {"gatewayClassName": class,
                    "listeners": [{"name": "http", "protocol": "HTTP", "port": 80,
                        "allowedRoutes": {"namespaces": {"from": "All"}}}]}}),
        );
    }
    put(
        &mut live,
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": "bank", "name": "edge-own", "uid": "u",
                "labels": {"app.kubernetes.io/managed-by": "gatewright"},
                "annotations": {"gatewright.io/gateway": "edge"},
                "ownerReferences": [{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": "edge",
                    "uid": "g", "controller": true}]},
            "spec": {"type": "LoadBalancer", "ports": [{"name": "p80", "port": 80, "targetPort": 20001}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}}),
    );
    live
}

fn parameters(fleet: &str) -> Value {
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "a", "name": "p"}, "spec": {"fleet": fleet}})
}

/// Returns the shop's route, attached to the Gateways of these namespaces.
fn route(namespaces: &[&str]) -> Value {
    let parents: Vec<Value> = namespaces
        .iter()
        .map(|namespace| json!({"name": "edge", "namespace": namespace}))
        .collect();
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "web", "namespace": "shop"}, "spec": {"parentRefs": parents, "hostnames": ["a.example.org"],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

/// Returns the resources that Envoys of a fleet can read, by kind and name.
pub(super) fn seen(live: &ControlPlane, fleet: EnvoyFleet) -> Vec<String> {
    let (_, resources) = live
        .cache
        .resources(live.views().of(&fleet).expect("it has a view"));
    let mut seen: Vec<String> = resources
        .iter()
        .map(|resource| format!("{} {}", resource.kind().label(), resource.name()))
        .collect();
    seen.sort();
    seen
}

#[test]
fn envoys_of_a_fleet_see_its_gateways_and_the_backends_that_they_lead_to() {
    let mut live = apart();
    put(&mut live, route(&["shop", "bank"]));
    let shared = [
        "cds shop/web:80",
        "eds shop/web:80",
        "lds shared:80",
        "srds shared:80",
        "srds shared:80|*",
        "srds shared:80|a.example.org",
    ];
    let own = [
        "cds shop/web:80",
        "eds shop/web:80",
        "lds bank/edge:80",
        "srds bank/edge:80",
        "srds bank/edge:80|*",
        "srds bank/edge:80|a.example.org",
    ];
    assert_eq!(seen(&live, EnvoyFleet::Shared), shared);
    assert_eq!(seen(&live, EnvoyFleet::Dedicated), own);

    // A backend that no route of a fleet refers to any more is removed, and comes back with its
    // endpoints.
    put(&mut live, route(&["bank"]));
    assert_eq!(
        seen(&live, EnvoyFleet::Shared),
        ["lds shared:80", "srds shared:80", "srds shared:80|*"]
    );
    assert_eq!(seen(&live, EnvoyFleet::Dedicated), own);
    let dedicated = live.views().id(&EnvoyFleet::Dedicated).expect("an id");
    let before = live.own_progress()[dedicated].published;
    put(&mut live, route(&["bank", "shop"]));
    assert_eq!(seen(&live, EnvoyFleet::Shared), shared);
    let after = live.own_progress()[dedicated].published;
    assert_eq!(
        before, after,
        "nothing is published to Envoys of whom nothing changed"
    );

    // A Gateway that moves is visible to Envoys of its present fleet only, in both directions.
    put(&mut live, parameters("Shared"));
    assert_eq!(seen(&live, EnvoyFleet::Dedicated), Vec::<String>::new());
    assert_eq!(seen(&live, EnvoyFleet::Shared), shared);
    put(&mut live, parameters("Dedicated"));
    assert_eq!(seen(&live, EnvoyFleet::Dedicated), own);
}

#[test]
fn what_envoys_refuse_is_shown_by_objects_of_their_view_alone() {
    let mut live = apart();
    put(&mut live, route(&["shop"]));
    fn blamed(
        live: &mut ControlPlane,
        fleet: &EnvoyFleet,
        kind: xds::Kind,
        name: &str,
        part: Option<xds::Part>,
    ) -> Vec<String> {
        let rejected = Rejection {
            view: live.views().of(fleet).expect("it has a view").clone(),
            node: Arc::from("envoy"),
            kind,
            name: Arc::from(name),
            part,
            version: Arc::from("1"),
            text: Arc::from("so says the Envoy"),
        };
        live.set_others(live.views.each(|_| Vec::new()), vec![rejected]);
        let rejected = live.fleet().rejected;
        let listeners = rejected
            .listeners
            .keys()
            .map(|listener| listener.parent.name().to_string());
        listeners
            .chain(rejected.routes.keys().map(|route| route.name.to_string()))
            .collect::<Vec<_>>()
    }
    let part = xds::Part {
        virtual_host: Arc::from("a.example.org"),
        route: Arc::from("httproute/shop/web/0/0"),
    };
    for (kind, name, part, object) in [
        (xds::Kind::Cluster, "shop/web:80", None, "shop/web"),
        (xds::Kind::Endpoints, "shop/web:80", None, "shop/web"),
        (xds::Kind::Listener, "shared:80", None, "shop/edge"),
        (xds::Kind::Route, "shared:80", Some(part), "shop/web"),
    ] {
        let of = blamed(&mut live, &EnvoyFleet::Shared, kind, name, part.clone());
        assert_eq!(of, [object], "{kind} {name}");
        let of = blamed(&mut live, &EnvoyFleet::Dedicated, kind, name, part);
        assert_eq!(
            of,
            Vec::<String>::new(),
            "{kind} {name} is not in the view of these Envoys"
        );
    }
    // A backend of several routes: only one of them is served by both fleets.
    put(&mut live, route(&["shop", "bank"]));
    let mut other = route(&["shop"]);
    (other["metadata"]["name"], other["spec"]["hostnames"]) =
        (json!("api"), json!(["b.example.org"]));
    put(&mut live, other);
    fn of(fleet: EnvoyFleet, live: &mut ControlPlane) -> Vec<String> {
        blamed(live, &fleet, xds::Kind::Cluster, "shop/web:80", None)
    }
    assert_eq!(of(EnvoyFleet::Shared, &mut live), ["shop/api", "shop/web"]);
    assert_eq!(of(EnvoyFleet::Dedicated, &mut live), ["shop/web"]);
}

#[test]
fn a_gateway_is_programmed_by_envoys_of_its_fleet() {
    let mut live = apart();
    fn programmed(live: &mut ControlPlane, namespace: &str) -> (bool, String) {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new(namespace, "edge"));
        let (status, _) = live.evaluate_status(&key);
        let status = status.expect("it is ours");
        let condition = status
            .conditions()
            .find(|c| c.kind.to_string() == "Programmed")
            .expect("it has one")
            .clone();
        (condition.status == Status::True, condition.message)
    }
    let newest = live.publication();
    fn node(name: &str, acknowledged: u64) -> NodeProgress {
        NodeProgress {
            node: name.into(),
            identity: "i".into(),
            acknowledged,
        }
    }
    let shared = live.views().shared();
    live.set_others(
        live.views().each(|id| {
            if id == shared {
                vec![node("s", newest), node("t", newest)]
            } else {
                Vec::new()
            }
        }),
        Vec::new(),
    );
    assert_eq!(
        programmed(&mut live, "shop"),
        (true, "acknowledged by 2 of 2 Envoys".to_owned())
    );
    let (is_programmed, text) = programmed(&mut live, "bank");
    assert!(
        !is_programmed && text.contains("no Envoy of fleet Dedicated is connected"),
        "{text}"
    );
    live.set_others(
        live.views().each(|id| {
            if id == shared {
                Vec::new()
            } else {
                vec![node("d", newest)]
            }
        }),
        Vec::new(),
    );
    assert_eq!(
        programmed(&mut live, "bank"),
        (true, "acknowledged by 1 of 1 Envoys".to_owned())
    );
    assert!(!programmed(&mut live, "shop").0);
}
