//! Locality: the work for one change does not grow with the number of hosts.

mod access;
mod roots;

use super::*;
use gatewright_objects::inputs::SetKey;

/// One host as a tenant publishes it: a ListenerSet with a certificate of its own, and a route.
/// A host below the domain of all others.
pub(super) fn host(n: usize) -> Vec<Change> {
    host_named(n, &format!("h{n}.example.org"))
}

/// A host with a domain of its own.
fn own_domain(n: usize) -> Vec<Change> {
    host_named(n, &format!("www.shop{n}.example"))
}

fn host_named(n: usize, hostname: &str) -> Vec<Change> {
    let listener = json!({"name": "https", "port": 443, "protocol": "HTTPS", "hostname": hostname,
        "tls": {"certificateRefs": [{"name": format!("c{n}")}]}});
    let set = json!({"parentRef": {"name": "g"}, "listeners": [listener]});
    let spec = json!({"parentRefs": [{"kind": "ListenerSet", "name": format!("s{n}")}],
        "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]});
    vec![
        Change::put(secret("a", &format!("c{n}"), &n.to_string())),
        Change::put(gateway_object("ListenerSet", "a", &format!("s{n}"), 0, set)),
        Change::put(gateway_object("HTTPRoute", "a", &format!("r{n}"), 0, spec)),
    ]
}

/// The work of a step: counters, and how many resources and statuses it changed.
pub(super) type Work = (crate::Counters, usize, usize);

/// Measures the work of each of several steps in turn.
pub(super) fn measured(
    engine: &mut Engine,
    steps: impl IntoIterator<Item = Vec<Change>>,
) -> Vec<Work> {
    steps
        .into_iter()
        .map(|step| {
            let before = engine.counters();
            let delta = engine.apply(step, now());
            (
                engine.counters().since(&before),
                delta.resources.len(),
                delta.statuses.len(),
            )
        })
        .collect()
}

/// The work to add, change and remove one host under a wildcard listener with `count` others.
fn work_under_a_wildcard(count: usize) -> Vec<Work> {
    let mut engine = engine();
    let tls = json!({"certificateRefs": [{"name": "wild"}]});
    let listener = json!({"name": "https", "port": 443, "protocol": "HTTPS", "hostname": "*.example.org", "tls": tls});
    let spec = json!({"gatewayClassName": "ours", "listeners": [listener]});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "web"},
        "spec": {"ports": [{"port": 80}]}});
    fn route(n: usize, path: &str) -> Object {
        let rule = json!({"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web", "port": 80}]});
        let spec = json!({"parentRefs": [{"name": "g"}], "hostnames": [format!("h{n}.example.org")], "rules": [rule]});
        gateway_object("HTTPRoute", "a", &format!("r{n}"), 0, spec)
    }
    let mut changes = vec![
        Change::put(classes()[0].clone()),
        Change::put(gateway_object("Gateway", "a", "g", 0, spec)),
        Change::put(object(service)),
    ];
    changes.push(Change::put(secret("a", "wild", "1")));
    changes.extend((0..count).map(|n| Change::put(route(n, "/"))));
    engine.apply(changes, now());
    let steps = [
        Change::put(route(count, "/")),
        Change::put(route(7, "/x")),
        Change::delete(route(count, "/").key()),
    ];
    measured(&mut engine, steps.map(|step| vec![step]))
}

/// A Gateway with `count` hosts, each with a ListenerSet of its own.
pub(super) fn hosting(count: usize, host: fn(usize) -> Vec<Change>) -> Engine {
    let mut engine = engine();
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    let spec = json!({"gatewayClassName": "ours", "listeners": listeners, "allowedListeners": {"namespaces": {"from": "All"}}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "web"},
        "spec": {"ports": [{"port": 80}]}});
    let mut changes = vec![
        Change::put(classes()[0].clone()),
        Change::put(gateway_object("Gateway", "a", "g", 0, spec)),
        Change::put(object(service)),
    ];
    changes.extend((0..count).flat_map(host));
    engine.apply(changes, now());
    engine
}

/// The work to add, change, rotate and remove one host with `count` others.
fn work(count: usize, host: fn(usize) -> Vec<Change>) -> Vec<Work> {
    let steps = [
        host(count),
        vec![
            host(7)
                .pop()
                .map(|change| match change {
                    Change::Object(ObjectChange::Put(Object::Route(mut route))) => {
                        route.rules[0].backends[0].weight = 5;
                        Change::put(Object::Route(route))
                    }
                    other => other,
                })
                .expect("three changes"),
        ],
        vec![Change::put(secret("a", "c7", "rotated"))],
        vec![Change::put(object(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}),
        ))],
        host(count)
            .into_iter()
            .map(|change| match change {
                Change::Object(ObjectChange::Put(object)) => Change::delete(object.key()),
                gone => gone,
            })
            .collect(),
    ];
    measured(&mut hosting(count, host), steps)
}

#[test]
fn the_work_for_one_host_does_not_grow_with_the_number_of_hosts() {
    let small = work(100, host);
    assert_eq!(small, work(1_000, host));
    assert_eq!(small, work(10_000, host));
    assert_eq!(small, work(100, own_domain));
    assert_eq!(small, work(1_000, own_domain));
    let (add, resources, _) = small[0];
    assert!(
        add.units <= 2 && add.frontends <= 1 && resources <= 2,
        "{small:?}"
    );
    assert_eq!(
        small[3],
        (crate::Counters::default(), 0, 0),
        "a namespace without our objects is no work"
    );
}

#[test]
fn a_withheld_listener_evaluates_its_listener_set_alone() {
    fn work(count: usize) -> Vec<(crate::Counters, usize, usize)> {
        let steps = [withheld(&["https"]), withheld(&["https"]), withheld(&[])];
        measured(&mut hosting(count, host), steps)
    }
    let small = work(100);
    assert_eq!(small, work(1_000));
    let [(taken, ..), again, (given, ..)] = small[..] else {
        panic!("three steps: {small:?}")
    };
    assert_eq!(taken.parents, 1, "{small:?}");
    assert_eq!(given.parents, 1, "{small:?}");
    assert!(
        taken.attachments <= 1 && taken.units <= 1 && given.units <= 1,
        "{small:?}"
    );
    assert_eq!(
        again,
        (crate::Counters::default(), 0, 0),
        "what is withheld already is no work"
    );
}

fn withheld(listeners: &[&str]) -> Vec<Change> {
    let listeners = listeners.iter().copied().map(Arc::from).collect();
    vec![Change::Fact(Fact::Withheld(
        SetKey::stable(ObjectName::new("a", "s7")),
        listeners,
    ))]
}

#[test]
fn the_work_for_one_host_under_a_wildcard_does_not_grow_either() {
    let small = work_under_a_wildcard(100);
    assert_eq!(small, work_under_a_wildcard(1_000));
    assert_eq!(small, work_under_a_wildcard(10_000));
    assert!(
        small
            .iter()
            .all(|(work, resources, _)| work.units == 1 && work.frontends == 0 && *resources == 1),
        "{small:?}"
    );
}

/// The work to add, change and remove a host of an admitted namespace with `count` others, while
/// another namespace has the catch-all on two ports.
fn work_of_an_admitted_namespace(count: usize) -> Vec<Work> {
    let mut engine = engine();
    fn listener(name: &str, port: u16) -> Value {
        json!({"name": name, "port": port, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}})
    }
    let spec = json!({"gatewayClassName": "ours", "listeners": [listener("one", 80), listener("two", 8080)]});
    fn route(namespace: &str, name: &str, hosts: Vec<String>, section: &str, path: &str) -> Object {
        let rule = json!({"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web", "port": 80}]});
        let mut parent = json!({"name": "g", "namespace": "a"});
        if !section.is_empty() {
            parent["sectionName"] = json!(section);
        }
        gateway_object(
            "HTTPRoute",
            namespace,
            name,
            0,
            json!({"parentRefs": [parent], "hostnames": hosts, "rules": [rule]}),
        )
    }
    fn host(n: usize, path: &str) -> Object {
        route(
            "b",
            &format!("r{n}"),
            vec![format!("h{n}.example.org")],
            "one",
            path,
        )
    }
    let mut changes = vec![
        Change::put(classes()[0].clone()),
        Change::put(gateway_object("Gateway", "a", "g", 0, spec)),
        Change::put(route("c", "everything", Vec::new(), "", "/")),
    ];
    changes.extend((0..count).map(|n| Change::put(host(n, "/"))));
    engine.apply(changes, now());
    let steps = [
        Change::put(host(count, "/")),
        Change::put(host(7, "/x")),
        Change::delete(host(count, "/").key()),
    ];
    measured(&mut engine, steps.map(|step| vec![step]))
}

#[test]
fn the_work_for_one_host_of_an_admitted_namespace_does_not_grow_either() {
    let small = work_of_an_admitted_namespace(100);
    assert_eq!(small, work_of_an_admitted_namespace(1_000));
    assert_eq!(small, work_of_an_admitted_namespace(10_000));
    assert!(
        small
            .iter()
            .all(|(work, ..)| work.units <= 2 && work.owned <= 1 && work.tables == 0),
        "{small:?}"
    );
}

/// The work to add, change and remove a host on plain HTTP with `count` others, and to change the
/// routes of a wildcard over them.
fn work_on_plain_http(count: usize) -> Vec<Work> {
    let mut engine = engine();
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    let spec = json!({"gatewayClassName": "ours", "listeners": listeners});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "web"},
        "spec": {"ports": [{"port": 80}]}});
    let route = |name: &str, hostname: &str, path: &str| {
        let rule = json!({"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web", "port": 80}]});
        let spec = json!({"parentRefs": [{"name": "g"}], "hostnames": [hostname], "rules": [rule]});
        gateway_object("HTTPRoute", "a", name, 0, spec)
    };
    let own = |n: usize, path: &str| route(&format!("r{n}"), &format!("h{n}.example.org"), path);
    let wide = |path: &str| route("wide", "*.example.org", path);
    let mut changes = vec![
        Change::put(classes()[0].clone()),
        Change::put(gateway_object("Gateway", "a", "g", 0, spec)),
        Change::put(object(service)),
        Change::put(wide("/")),
    ];
    changes.extend((0..count).map(|n| Change::put(own(n, "/"))));
    engine.apply(changes, now());
    let steps = [
        Change::put(own(count, "/")),
        Change::put(own(7, "/x")),
        Change::delete(own(count, "/").key()),
        Change::put(wide("/x")),
    ];
    measured(&mut engine, steps.map(|step| vec![step]))
}

#[test]
fn the_work_for_one_host_on_plain_http_does_not_grow_either() {
    let small = work_on_plain_http(100);
    assert_eq!(small, work_on_plain_http(1_000));
    assert_eq!(small, work_on_plain_http(10_000));
    for (work, resources, _) in &small {
        assert_eq!(*resources, 1, "one scope, and nothing of others: {small:?}");
        assert_eq!(work.units, 1, "{small:?}");
        assert_eq!(work.tables + work.frontends, 0, "{small:?}");
    }
}

#[test]
fn another_wildcard_on_plain_http_sends_its_routes_and_the_list_of_wildcards() {
    let mut engine = engine();
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    let spec = json!({"gatewayClassName": "ours", "listeners": listeners});
    let route = |name: &str| {
        let spec = json!({"parentRefs": [{"name": "g"}], "hostnames": [format!("*.{name}.org")],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]});
        Change::put(gateway_object("HTTPRoute", "a", name, 0, spec))
    };
    let gateway = Change::put(gateway_object("Gateway", "a", "g", 0, spec));
    let before = vec![Change::put(classes()[0].clone()), gateway, route("one")];
    engine.apply(before, now());
    let delta = engine.apply(vec![route("two")], now());
    let changed: Vec<_> = delta.resources.values().flatten().collect();
    let [Resource::Scope(scope), Resource::WideHosts(wide)] = changed.as_slice() else {
        panic!("{changed:?}")
    };
    assert_eq!(scope.virtual_host.hostname.as_str(), "*.two.org");
    assert_eq!(
        wide.hostnames,
        ["", "*.one.org", "*.two.org"].map(crate::confluence::hostname)
    );
}

/// The work to add a host and change the policy of its Service with `count` other hosts.
fn work_of_a_policy(count: usize) -> Vec<Work> {
    let mut engine = engine();
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    let spec = json!({"gatewayClassName": "ours", "listeners": listeners, "allowedListeners": {"namespaces": {"from": "All"}}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "web"},
        "spec": {"ports": [{"port": 80}]}});
    fn policy(hostname: &str) -> Change {
        let targets = json!([{"group": "", "kind": "Service", "name": "web"}]);
        let validation = json!({"hostname": hostname, "wellKnownCACertificates": "System"});
        let spec = json!({"targetRefs": targets, "validation": validation});
        Change::put(gateway_object("BackendTLSPolicy", "a", "p", 0, spec))
    }
    let mut changes = vec![
        Change::put(classes()[0].clone()),
        Change::put(gateway_object("Gateway", "a", "g", 0, spec)),
        Change::put(object(service)),
        policy("one.internal"),
    ];
    changes.extend((0..count).flat_map(host));
    engine.apply(changes, now());
    measured(&mut engine, [host(count), vec![policy("two.internal")]])
}

#[test]
fn the_work_for_a_policy_does_not_grow_with_the_number_of_hosts() {
    let small = work_of_a_policy(100);
    assert_eq!(small, work_of_a_policy(1_000));
    assert_eq!(small, work_of_a_policy(10_000));
    let (change, resources, statuses) = small[1];
    // The cluster changes; the policy's status does not.
    assert_eq!(change.policies, 1, "{small:?}");
    assert_eq!(change.routes, 0, "{small:?}");
    assert_eq!(change.units, 0, "{small:?}");
    assert_eq!(resources, 1, "{small:?}");
    assert_eq!(statuses, 0, "{small:?}");
}

/// The work that changing the retries and the sessions of a Service takes when `count` hosts have
/// routes to another one.
fn work_of_a_traffic_policy(count: usize) -> Vec<Work> {
    let mut engine = hosting(count, host);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "api"},
        "spec": {"ports": [{"port": 80}]}});
    let spec = json!({"parentRefs": [{"name": "g"}], "hostnames": ["api.example.org"],
        "rules": [{"backendRefs": [{"name": "api", "port": 80}]}]});
    fn policy(service: &str, spec: Value) -> Vec<Change> {
        let mut spec = spec;
        spec["targetRefs"] = json!([{"group": "", "kind": "Service", "name": service}]);
        vec![Change::put(object(
            json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackendTrafficPolicy",
            "metadata": {"namespace": "a", "name": service}, "spec": spec}),
        ))]
    }
    engine.apply(
        vec![
            Change::put(object(service)),
            Change::put(gateway_object("HTTPRoute", "a", "api", 0, spec)),
        ],
        now(),
    );
    engine.apply(policy("web", budget(1)), now());
    let session = json!({"sessionPersistence": {"type": "Cookie", "cookie": {"name": "sid"}}});
    let steps = [
        policy("web", budget(2)),
        policy("api", budget(1)),
        policy("api", session),
    ];
    measured(&mut engine, steps)
}

fn budget(percent: u8) -> Value {
    json!({"retryConstraint": {"budget": {"percent": percent}}})
}

#[test]
fn the_work_for_a_traffic_policy_does_not_grow_with_the_number_of_hosts() {
    let small = work_of_a_traffic_policy(100);
    assert_eq!(small, work_of_a_traffic_policy(1_000));
    let [(of_all, all, _), (begins, one, _), (sessions, two, _)] = small[..] else {
        panic!("three steps: {small:?}")
    };
    // A budget is in the cluster, a session in the routes to the Service.
    assert_eq!(of_all.policies, 1, "{small:?}");
    assert_eq!(of_all.routes, 0, "{small:?}");
    assert_eq!(of_all.units, 0, "{small:?}");
    assert_eq!(all, 1, "{small:?}");
    assert_eq!(begins.routes, 0, "{small:?}");
    assert_eq!(begins.units, 0, "{small:?}");
    assert_eq!(one, 1, "{small:?}");
    assert_eq!(sessions.routes, 1, "{small:?}");
    assert_eq!(sessions.units, 1, "{small:?}");
    assert_eq!(two, 2, "{small:?}");
}

/// The work that changing the policy of a Service takes when `count` hosts have routes to another
/// one.
fn work_of_a_backend_policy(count: usize) -> Vec<Work> {
    let mut engine = hosting(count, host);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "api"},
        "spec": {"ports": [{"port": 80}]}});
    let spec = json!({"parentRefs": [{"name": "g"}], "hostnames": ["api.example.org"],
        "rules": [{"backendRefs": [{"name": "api", "port": 80}]}]});
    fn policy(service: &str, balancer: Value) -> Vec<Change> {
        let targets = json!([{"group": "", "kind": "Service", "name": service}]);
        vec![Change::put(object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
            "metadata": {"namespace": "a", "name": service},
            "spec": {"targetRefs": targets, "loadBalancer": balancer}}),
        ))]
    }
    engine.apply(
        vec![
            Change::put(object(service)),
            Change::put(gateway_object("HTTPRoute", "a", "api", 0, spec)),
        ],
        now(),
    );
    engine.apply(policy("web", json!({"type": "Random"})), now());
    let hash = json!({"type": "ConsistentHash", "consistentHash": {"type": "SourceIP"}});
    let steps = [
        policy("web", json!({"type": "RoundRobin"})),
        policy("api", json!({"type": "RoundRobin"})),
        policy("api", hash),
    ];
    measured(&mut engine, steps)
}

#[test]
fn the_work_for_a_backend_policy_does_not_grow_with_the_number_of_hosts() {
    let small = work_of_a_backend_policy(100);
    assert_eq!(small, work_of_a_backend_policy(1_000));
    let [(of_all, all, _), (begins, one, _), (hashes, two, _)] = small[..] else {
        panic!("three steps: {small:?}")
    };
    // Settings are in the cluster, a hash in the routes to the Service as well.
    assert_eq!(of_all.units, 0, "{small:?}");
    assert_eq!(all, 1, "{small:?}");
    assert_eq!(begins.units, 0, "{small:?}");
    assert_eq!(one, 1, "{small:?}");
    assert_eq!(hashes.units, 1, "{small:?}");
    assert_eq!(two, 2, "{small:?}");
}

/// The work around `count` policies of a kind beyond the limit, all of them for one Service: to
/// change one of them, to change the one that is first, and to add an older one.
fn work_beside_policies_beyond_the_limit(kind: &str, count: usize) -> Vec<Work> {
    let limits = Limits {
        namespace: NamespaceLimits {
            policies: 2,
            ..Limits::NONE.namespace
        },
        ..Limits::NONE
    };
    let mut engine = Engine::new(Settings {
        limits,
        ..settings("reached")
    });
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "web"},
        "spec": {"ports": [{"port": 80}]}});
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    let gateway = json!({"gatewayClassName": "ours", "listeners": listeners});
    let route = json!({"parentRefs": [{"name": "g"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]});
    fn policy(name: &str, created: u32, variant: u8, kind: &str) -> Change {
        let mut spec = json!({"targetRefs": [{"group": "", "kind": "Service", "name": "web"}]});
        let version = match kind {
            "BackendTLSPolicy" => {
                let hostname = format!("v{variant}.internal");
                spec["validation"] =
                    json!({"hostname": hostname, "wellKnownCACertificates": "System"});
                "gateway.networking.k8s.io/v1"
            }
            "TrafficPolicy" => {
                spec["timeout"] = json!({"tcp": {"connectTimeout": format!("{variant}s")}});
                "gatewright.io/v1alpha1"
            }
            _ => {
                spec["sessionPersistence"] =
                    json!({"type": "Cookie", "cookie": {"name": format!("v{variant}")}});
                "gateway.networking.x-k8s.io/v1alpha1"
            }
        };
        let created = format!("2026-01-01T00:00:{created:02}Z");
        let metadata = json!({"namespace": "a", "name": name, "creationTimestamp": created});
        Change::put(object(
            json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}),
        ))
    }
    let mut changes = vec![
        Change::put(classes()[0].clone()),
        Change::put(object(service)),
        Change::put(gateway_object("Gateway", "a", "g", 0, gateway)),
        Change::put(gateway_object("HTTPRoute", "a", "r", 0, route)),
        policy("one", 1, 1, kind),
        policy("two", 2, 1, kind),
    ];
    changes.extend((0..count).map(|n| policy(&format!("p{n}"), 3, 1, kind)));
    engine.apply(changes, now());
    let steps = [
        policy("p7", 3, 2, kind),
        policy("one", 1, 2, kind),
        policy("zero", 0, 3, kind),
    ];
    measured(&mut engine, steps.map(|step| vec![step]))
}

#[test]
fn the_work_for_a_policy_does_not_grow_with_those_beyond_the_limit() {
    for kind in ["BackendTLSPolicy", "XBackendTrafficPolicy", "TrafficPolicy"] {
        let few = work_beside_policies_beyond_the_limit(kind, 10);
        assert_eq!(
            few,
            work_beside_policies_beyond_the_limit(kind, 500),
            "{kind}"
        );
        // The policy that changes, and of the others those within the limit.
        assert!(
            few.iter()
                .all(|(work, ..)| work.policies <= 2 && work.statuses <= 4),
            "{kind}: {few:?}"
        );
        assert_eq!(few[0].0.statuses, 1, "{kind}: {few:?}");
        assert_eq!(few[0].1, 0, "{kind}: {few:?}");
        assert_eq!(few[0].2, 0, "{kind}: {few:?}");
    }
}

/// The work around default Gateways when `count` routes want some: a route more, another that
/// changes, a Gateway that is none, and one that becomes a default one which allows none of them.
fn work_of_default_gateways(count: usize) -> Vec<Work> {
    let mut engine = engine();
    fn gateway(namespace: &str, name: &str, scope: &str) -> Change {
        let listener = json!({"name": "http", "port": 80, "protocol": "HTTP"});
        let spec =
            json!({"gatewayClassName": "open", "listeners": [listener], "defaultScope": scope});
        Change::put(gateway_object("Gateway", namespace, name, 0, spec))
    }
    fn route(n: usize, path: &str) -> Change {
        let rule = json!({"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web", "port": 80}]});
        let spec = json!({"useDefaultGateways": "All", "hostnames": [format!("h{n}.example.org")], "rules": [rule]});
        Change::put(gateway_object("HTTPRoute", "a", &format!("r{n}"), 0, spec))
    }
    let reference = json!({"group": "gatewright.io", "kind": "GatewayParameters", "namespace": "a", "name": "open"});
    let class = object(
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "open"}, "spec": {"controllerName": CONTROLLER, "parametersRef": reference}}),
    );
    let allows = object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "a", "name": "open"}, "spec": {"defaultGateways": "Allow"}}),
    );
    let mut changes = vec![
        Change::put(class),
        Change::put(allows),
        gateway("a", "g", "All"),
    ];
    changes.extend((0..count).map(|n| route(n, "/")));
    engine.apply(changes, now());
    let steps = [
        vec![route(count, "/")],
        vec![route(7, "/x")],
        vec![gateway("b", "other", "None")],
        vec![gateway("b", "other", "All")],
    ];
    measured(&mut engine, steps)
}

#[test]
fn the_work_around_default_gateways_does_not_grow_with_the_routes_that_want_them() {
    let few = work_of_default_gateways(100);
    let many = work_of_default_gateways(1_000);
    assert_eq!(few[..3], many[..3]);
    let (add, resources, _) = few[0];
    assert!(
        add.attachments == 1 && add.units == 1 && add.routes == 1 && resources <= 1,
        "{few:?}"
    );
    assert_eq!(
        few[2].0.attachments, 0,
        "no route looks at a Gateway that is no default one"
    );
    assert_eq!(
        few[2].0.units, 1,
        "no route looks at a Gateway that is no default one"
    );
    // Another default Gateway is looked at by all of them, once; what does not allow them changes
    // nothing.
    for (work, count) in [(&few[3], 101), (&many[3], 1_001)] {
        assert_eq!(work.0.attachments, count, "{work:?}");
        assert_eq!(work.0.units, 0, "{work:?}");
        assert_eq!(work.0.routes, 0, "{work:?}");
        assert_eq!(work.1, 0, "{work:?}");
    }
}
