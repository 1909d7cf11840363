mod ports;

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::{
    Change, Counters, DedicatedEnvoys, Delta, Engine, Fleet, Resource, ResourceKey, ServiceIntent,
    Settings, StatusBody,
};
use gatewright_objects::inputs::{Kind, MANAGED_BY, MANAGER, Object, ObjectKey, SLICES_BY};
use gatewright_objects::limits::Limits;
use gatewright_objects::model::{
    Condition, ConditionType, Frontend, ObjectName, Status, TransportPort,
};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

/// An installation whose class `g` lets Gateways stand on Services that they name.
struct Site {
    engine: Engine,
    frontends: BTreeMap<ResourceKey, Frontend>,
}

impl Site {
    fn new() -> Self {
        Self::within(Limits::default())
    }

    fn within(limits: Limits) -> Self {
        let settings = Settings {
            limits,
            fleet: Fleet::Shared,
            envoys: Some(ObjectName::new("ours", "envoy")),
            dedicated: DedicatedEnvoys::Apart(ObjectName::new("ours", "own")),
            ..Settings::new("c", vec![])
        };
        let mut site = Self {
            engine: Engine::new(settings),
            frontends: BTreeMap::new(),
        };
        site.put(parameters(
            "infra",
            "class",
            json!({"fleet": "Dedicated", "namedServices": "Allow"}),
        ));
        site.put(json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g"}, "spec": {
            "controllerName": "c", "parametersRef": reference("class", Some("infra"))}}));
        site.put(fleet("own", &[("first", 20_000)], "10.0.0.1"));
        site
    }

    fn apply(&mut self, change: Change) -> Delta {
        let delta = self.engine.apply(vec![change], SystemTime::UNIX_EPOCH);
        for (key, resource) in &delta.resources {
            match resource {
                Some(Resource::Frontend(frontend)) => {
                    self.frontends.insert(key.clone(), frontend.clone());
                }
                _ => {
                    self.frontends.remove(key);
                }
            }
        }
        delta
    }

    fn put(&mut self, value: Value) -> Delta {
        self.apply(Change::put(
            Object::parse_admitted(value).expect("an object"),
        ))
    }

    fn delete(&mut self, kind: Kind, namespace: &str, name: &str) -> Delta {
        self.apply(Change::delete(ObjectKey::new(
            kind,
            ObjectName::new(namespace, name),
        )))
    }

    /// Puts a Gateway with HTTP listeners at these ports, which stands on a Service of its
    /// namespace.
    fn put_gateway_on(
        &mut self,
        namespace: &str,
        name: &str,
        created: u32,
        service: &str,
        ports: &[u16],
    ) {
        self.put(parameters(
            namespace,
            name,
            json!({"service": {"name": service}}),
        ));
        self.put(gateway(namespace, name, created, ports));
    }

    /// Writes the lent slices of a Gateway, as the lease holder does. Returns whether there are
    /// any.
    fn write(&mut self, namespace: &str, name: &str) -> bool {
        let gateway = ObjectName::new(namespace, name);
        let Some(ServiceIntent::Slices(desired)) = self.engine.services().get(&gateway).cloned()
        else {
            panic!("{gateway} stands on a Service")
        };
        let slice = format!("{}-v4", desired.prefix);
        if desired.ports.is_empty() {
            self.delete(Kind::EndpointSlice, namespace, &slice);
            return false;
        }
        let ports: Vec<Value> = desired
            .ports
            .iter()
            .map(|(name, at)| json!({"name": name, "port": at.number, "protocol": at.transport.as_str()}))
            .collect();
        let endpoints: Vec<Value> = desired
            .envoys
            .keys()
            .map(|ip| json!({"addresses": [ip]}))
            .collect();
        let mut labels = json!(desired.labels);
        labels["kubernetes.io/service-name"] = json!(*desired.service.name);
        labels[SLICES_BY] = json!(MANAGER);
        self.put(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": namespace, "name": slice, "uid": "s", "labels": labels,
                "annotations": desired.annotations, "ownerReferences": [{"apiVersion": GATEWAY, "kind": "Gateway",
                    "name": name, "uid": "u", "controller": true}]},
            "endpoints": endpoints, "ports": ports}));
        true
    }

    /// The Envoy port of each port of a Gateway.
    fn served(&self, namespace: &str, name: &str) -> Vec<(u16, u16)> {
        let gateway = ObjectName::new(namespace, name);
        let of_gateway = self
            .frontends
            .values()
            .filter(|frontend| frontend.id.gateway == gateway);
        of_gateway
            .map(|frontend| (frontend.id.port, frontend.port))
            .collect()
    }

    /// The intended lent slices of a Gateway: the names of its Service's ports, and Envoy ports.
    fn led(&self, namespace: &str, name: &str) -> Vec<String> {
        match self
            .engine
            .services()
            .get(&ObjectName::new(namespace, name))
        {
            Some(ServiceIntent::Slices(desired)) => desired
                .ports
                .iter()
                .map(|(name, at)| format!("{name}={at}"))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    fn status(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> (Vec<Condition>, Vec<Vec<Condition>>, Vec<String>) {
        let key = ObjectKey::new(kind, ObjectName::new(namespace, name));
        match self.engine.status(&key).expect("it has a status").body {
            StatusBody::Gateway(status) => (
                status.conditions,
                status
                    .listeners
                    .into_iter()
                    .map(|listener| listener.conditions)
                    .collect(),
                status
                    .addresses
                    .iter()
                    .map(|at| at.address.to_string())
                    .collect(),
            ),
            StatusBody::ListenerSet(status) => (
                status.conditions,
                status
                    .listeners
                    .into_iter()
                    .map(|listener| listener.conditions)
                    .collect(),
                vec![],
            ),
            other => panic!("{other:?}"),
        }
    }

    /// `Accepted` and `Programmed` of a Gateway.
    fn told(&self, namespace: &str, name: &str) -> [String; 2] {
        let (conditions, ..) = self.status(Kind::Gateway, namespace, name);
        [ConditionType::Accepted, ConditionType::Programmed]
            .map(|kind| condition(&conditions, kind))
    }

    /// `Accepted` of its listeners.
    fn listeners(&self, namespace: &str, name: &str) -> Vec<String> {
        let (_, listeners, _) = self.status(Kind::Gateway, namespace, name);
        listeners
            .iter()
            .map(|conditions| condition(conditions, ConditionType::Accepted))
            .collect()
    }

    fn addresses(&self, namespace: &str, name: &str) -> Vec<String> {
        self.status(Kind::Gateway, namespace, name).2
    }
}

fn condition(conditions: &[Condition], kind: ConditionType) -> String {
    let found = conditions
        .iter()
        .find(|condition| condition.kind == kind)
        .expect("it has one");
    match found.status {
        Status::True => "True".to_owned(),
        _ => format!("{:?}: {}", found.reason, found.message),
    }
}

fn reference(name: &str, namespace: Option<&str>) -> Value {
    let mut reference =
        json!({"group": "gatewright.io", "kind": "GatewayParameters", "name": name});
    if let Some(namespace) = namespace {
        reference["namespace"] = json!(namespace);
    }
    reference
}

fn parameters(namespace: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": namespace, "name": name}, "spec": spec})
}

fn gateway(namespace: &str, name: &str, created: u32, ports: &[u16]) -> Value {
    fn listener(port: &u16) -> Value {
        json!({"name": format!("l{port}"), "protocol": "HTTP", "port": port})
    }
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"namespace": namespace, "name": name,
            "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
        "spec": {"gatewayClassName": "g", "infrastructure": {"parametersRef": reference(name, None)},
            "allowedListeners": {"namespaces": {"from": "All"}},
            "listeners": ports.iter().map(listener).collect::<Vec<_>>()}})
}

/// A Service of a user's, with an address.
fn service(namespace: &str, name: &str, ports: &[(u16, Value)]) -> Value {
    fn port((port, target): &(u16, Value)) -> Value {
        json!({"name": format!("n{port}"), "port": port, "targetPort": target})
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
        "spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.0.7"], "ports": ports.iter().map(port).collect::<Vec<_>>()},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}})
}

/// A slice of the Envoys behind a Service of the installation.
fn fleet(service: &str, ports: &[(&str, u16)], ip: &str) -> Value {
    fn port((name, port): &(&str, u16)) -> Value {
        json!({"name": name, "port": port})
    }
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "ours", "name": format!("{service}-{ip}"),
            "labels": {"kubernetes.io/service-name": service}},
        "endpoints": [{"addresses": [ip]}], "ports": ports.iter().map(port).collect::<Vec<_>>()})
}

#[test]
fn a_gateway_is_served_at_the_target_ports_of_the_service_that_it_names() {
    let mut site = Site::new();
    site.put(service(
        "a",
        "web",
        &[(80, json!(20_001)), (443, json!(20_002))],
    ));
    site.put_gateway_on("a", "edge", 0, "web", &[80]);
    assert_eq!(
        site.led("a", "edge"),
        ["n80=20001"],
        "nothing leads to a port that has no listener"
    );
    assert!(site.served("a", "edge").is_empty(), "before it is recorded");
    assert_eq!(
        site.told("a", "edge")[1],
        "Pending: Service a/web does not lead to Envoys yet"
    );
    assert!(site.write("a", "edge"));
    assert_eq!(site.served("a", "edge"), [(80, 20_001)]);
    assert_eq!(site.told("a", "edge"), ["True", "True"]);
    assert_eq!(site.addresses("a", "edge"), ["192.0.2.7"]);
    assert!(
        !site
            .engine
            .services()
            .values()
            .any(|intent| matches!(intent, ServiceIntent::Wanted(_))),
        "no Service is made for it"
    );

    // Its targetPort changes: it is served at the old one until the new one is recorded.
    site.put(service("a", "web", &[(80, json!(20_003))]));
    assert_eq!(site.served("a", "edge"), [(80, 20_001)]);
    assert!(site.write("a", "edge"));
    assert_eq!(site.served("a", "edge"), [(80, 20_003)]);
    // Another listener, and one of a ListenerSet.
    site.put(service(
        "a",
        "web",
        &[
            (80, json!(20_003)),
            (443, json!(20_002)),
            (81, json!(20_004)),
        ],
    ));
    site.put(gateway("a", "edge", 0, &[80, 443]));
    site.put(json!({"apiVersion": GATEWAY, "kind": "ListenerSet", "metadata": {"namespace": "b", "name": "more"},
        "spec": {"parentRef": {"name": "edge", "namespace": "a"}, "listeners": [
            {"name": "l81", "protocol": "HTTP", "port": 81}, {"name": "l82", "protocol": "HTTP", "port": 82}]}}));
    assert!(site.write("a", "edge"));
    assert_eq!(
        site.served("a", "edge"),
        [(80, 20_003), (81, 20_004), (443, 20_002)]
    );
    let (_, listeners, _) = site.status(Kind::ListenerSet, "b", "more");
    let told: Vec<String> = listeners
        .iter()
        .map(|l| condition(l, ConditionType::Accepted))
        .collect();
    let lacks = "PortUnavailable: Service a/web has no port 82: add it, or use one that it has (80, 81, 443)";
    assert_eq!(told, ["True", lacks]);

    // The Service is deleted: nothing is served, and no slice leads to the Gateway.
    site.delete(Kind::Service, "a", "web");
    let gone = "AddressNotAssigned: Service a/web is not there: create it, without a selector, or name another one";
    assert_eq!(site.told("a", "edge")[1], gone);
    assert!(site.served("a", "edge").is_empty() && site.addresses("a", "edge").is_empty());
    assert!(!site.write("a", "edge"), "slices go as well");
    site.put(service("a", "web", &[(80, json!(20_003))]));
    assert!(site.write("a", "edge"));
    assert_eq!(site.served("a", "edge"), [(80, 20_003)]);
}

#[test]
fn a_service_that_cannot_be_stood_on_is_told() {
    fn good() -> Value {
        service("a", "web", &[(80, json!(20_001))])
    }
    fn with(field: &str, value: Value) -> Value {
        let mut service = good();
        service["spec"][field] = value;
        service
    }
    let made = {
        let mut made = good();
        made["metadata"]["labels"] = json!({MANAGED_BY: MANAGER});
        made["metadata"]["annotations"] = json!({"gatewright.io/gateway": "other"});
        made["metadata"]["ownerReferences"] = json!([{"apiVersion": GATEWAY, "kind": "Gateway", "name": "other", "uid": "1", "controller": true}]);
        made
    };
    let mut site = Site::new();
    site.put(good());
    site.put_gateway_on("a", "edge", 0, "web", &[80]);
    for (service, told) in [
        (
            with("type", json!("ExternalName")),
            "Service a/web is of type ExternalName",
        ),
        (
            with("clusterIP", json!("None")),
            "Service a/web is headless",
        ),
        (
            with("selector", json!({"app": "web"})),
            "Service a/web has a selector",
        ),
        (
            made,
            "Service a/web is the one that was made for Gateway a/other: name another one",
        ),
    ] {
        site.put(good());
        assert!(site.write("a", "edge"));
        assert_eq!(site.served("a", "edge"), [(80, 20_001)]);
        site.put(service);
        let programmed = &site.told("a", "edge")[1];
        assert!(
            programmed.starts_with(&format!("AddressNotUsable: {told}")),
            "{programmed}"
        );
        assert!(
            site.served("a", "edge").is_empty() && site.led("a", "edge").is_empty(),
            "{told}"
        );
        assert_eq!(
            site.listeners("a", "edge"),
            ["True"],
            "it is no matter of the listener's"
        );
    }
    site.put(good());
    // Addresses that the Service does not have.
    let mut asking = gateway("a", "edge", 0, &[80]);
    asking["spec"]["addresses"] = json!([{"type": "IPAddress", "value": "192.0.2.8"}]);
    site.put(asking.clone());
    let told = "AddressNotUsable: spec.addresses: Service a/web is reached at 192.0.2.7: name that, or none";
    assert_eq!(site.told("a", "edge")[1], told);
    assert!(site.served("a", "edge").is_empty());
    asking["spec"]["addresses"][0]["value"] = json!("192.0.2.7");
    site.put(asking);
    assert_eq!(site.told("a", "edge")[1], "True");
    // The Service of the fleet itself.
    site.put(service("ours", "own", &[(80, json!(20_001))]));
    site.put_gateway_on("ours", "edge", 0, "own", &[80]);
    let programmed = &site.told("ours", "edge")[1];
    assert!(
        programmed.contains("Service ours/own leads to all Envoys of a fleet"),
        "{programmed}"
    );
    // A Service without an address yet is recorded, and reported.
    let mut waiting = good();
    waiting["status"] = json!({});
    site.put(waiting);
    site.put(gateway("a", "edge", 0, &[80]));
    let programmed = &site.told("a", "edge")[1];
    assert!(
        programmed.starts_with("AddressNotAssigned: Service a/web has no address yet"),
        "{programmed}"
    );
}

#[test]
fn target_ports_are_numbers_of_the_dedicated_fleet_or_names_behind_its_service() {
    let mut site = Site::new();
    site.put(fleet(
        "own",
        &[("first", 20_000), ("web", 20_007), ("admin", 9901)],
        "10.0.0.1",
    ));
    for (target, told) in [
        (json!(20_001), Ok(20_001)),
        (json!("web"), Ok(20_007)),
        (
            json!(8080),
            Err("has targetPort 8080, where Envoys may listen for others"),
        ),
        (
            json!(0),
            Err("has targetPort 80, where Envoys may listen for others"),
        ),
        (
            json!("admin"),
            Err("has targetPort 9901, where Envoys may listen for others"),
        ),
        (
            json!("gone"),
            Err(
                "has targetPort \"gone\", and Service ours/own, which has the Envoys behind it, leads to no port",
            ),
        ),
    ] {
        site.put(service("a", "web", &[(80, target)]));
        site.put_gateway_on("a", "edge", 0, "web", &[80]);
        let written = site.write("a", "edge");
        match told {
            Ok(port) => {
                assert!(written, "the slice of port {port} is written");
                assert_eq!(site.served("a", "edge"), [(80, port)], "the port is served");
            }
            Err(text) => {
                let listener = &site.listeners("a", "edge")[0];
                assert!(
                    listener
                        .starts_with(&format!("PortUnavailable: port 80 of Service a/web {text}")),
                    "{listener}"
                );
                assert!(!written && site.served("a", "edge").is_empty());
            }
        }
    }
    // Envoys of another rollout have another port of that name.
    site.put(service("a", "web", &[(80, json!("web"))]));
    site.write("a", "edge");
    assert_eq!(site.served("a", "edge"), [(80, 20_007)]);
    site.put(fleet("own", &[("web", 20_008)], "10.0.0.2"));
    let listener = &site.listeners("a", "edge")[0];
    let told = "\"web\", which is 20007 and 20008 behind Service ours/own: use a number from 20000 to 29999";
    assert!(listener.contains(told), "{listener}");
    assert!(site.served("a", "edge").is_empty() && site.led("a", "edge").is_empty());
    site.delete(Kind::EndpointSlice, "ours", "own-10.0.0.1");
    site.write("a", "edge");
    assert_eq!(site.served("a", "edge"), [(80, 20_008)]);
}

#[test]
fn only_where_the_class_allows_it_and_only_in_parameters_of_a_gateway() {
    let mut site = Site::new();
    site.put(service("a", "web", &[(80, json!(20_001))]));
    site.put_gateway_on("a", "edge", 0, "web", &[80]);
    site.write("a", "edge");
    for (class, told) in [
        (
            json!({"fleet": "Dedicated"}),
            "Gateways of GatewayClass g have Services that are made for them",
        ),
        (
            json!({"fleet": "Dedicated", "namedServices": "Refuse"}),
            "set spec.namedServices to Allow",
        ),
        (
            json!({"fleet": "Shared", "namedServices": "Allow"}),
            "spec.service.name belongs to fleet Dedicated",
        ),
        (
            json!({"service": {"name": "web"}}),
            "spec.service.name belongs to the parameters of a Gateway",
        ),
    ] {
        site.put(parameters("infra", "class", class));
        let accepted = &site.told("a", "edge")[0];
        assert!(
            accepted.starts_with("InvalidParameters: ") && accepted.contains(told),
            "{accepted}"
        );
        assert!(site.served("a", "edge").is_empty());
        // The slices stay as they are, and the port belongs to no other Gateway.
        let gateway = ObjectName::new("a", "edge");
        assert_eq!(
            site.engine.services().get(&gateway),
            Some(&ServiceIntent::Left)
        );
    }
    site.put(parameters(
        "infra",
        "class",
        json!({"fleet": "Dedicated", "namedServices": "Allow"}),
    ));
    assert_eq!(site.served("a", "edge"), [(80, 20_001)]);
    for (own, told) in [
        (
            json!({"namedServices": "Allow"}),
            "spec.namedServices belongs to the parameters of a GatewayClass",
        ),
        (
            json!({"service": {"name": "web", "type": "ClusterIP"}}),
            "has a type and a load balancer of its own",
        ),
    ] {
        site.put(parameters("a", "edge", own));
        let accepted = &site.told("a", "edge")[0];
        assert!(
            accepted.starts_with("InvalidParameters: ") && accepted.contains(told),
            "{accepted}"
        );
    }
}

#[test]
fn a_service_concerns_the_gateways_that_stand_on_it_alone() {
    fn work(count: u16) -> ((Counters, usize, usize), Counters) {
        let mut site = Site::new();
        for n in 0..count {
            let name = format!("g{n}");
            site.put(service("a", &name, &[(80, json!(20_001 + n))]));
            site.put_gateway_on("a", &name, 0, &name, &[80]);
            assert!(site.write("a", &name));
        }
        let before = site.engine.counters();
        let delta = site.put(service("a", "g0", &[(80, json!(29_000))]));
        fn counted(site: &Site, before: &Counters) -> Counters {
            site.engine.counters().since(before)
        }
        let services = delta.services.keys().cloned().collect::<Vec<_>>();
        assert_eq!(services, [ObjectName::new("a", "g0")]);
        let changed = (
            counted(&site, &before),
            delta.resources.len(),
            delta.statuses.len(),
        );
        let before = site.engine.counters();
        site.write("a", "g0");
        (changed, counted(&site, &before))
    }
    let few = work(3);
    assert_eq!(few.0.0.parents, 1, "one Gateway is looked at");
    assert_eq!(few.1.frontends, 1, "one port is written");
    assert_eq!(few, work(60), "others cost nothing");
}
