//! AccessPolicies count for the routes that they guard.

use super::*;

/// An AccessPolicy of a namespace on its Gateway, with so many networks.
fn access(namespace: &str, gateway: &str, networks: usize) -> Value {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": gateway});
    let networks: Vec<String> = (0..networks)
        .map(|number| format!("10.0.{number}.0/24"))
        .collect();
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "AccessPolicy",
        "metadata": {"namespace": namespace, "name": "p"},
        "spec": {"targetRefs": [target], "clientAddress": {"allow": networks}}})
}

#[test]
fn a_policy_of_the_gateway_counts_for_the_routes_there_and_is_never_left_out() {
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            envoy_mib: 4,
            ..Limits::default().namespace
        },
        ..Limits::default()
    });
    let rules: Vec<Value> = (0..16).map(|_| edits(3, 1)).collect();
    told.route("HTTPRoute", "r", 0, &["a.org"], json!(rules));
    told.route(
        "TLSRoute",
        "t",
        0,
        &["b.org"],
        json!([{"backendRefs": [backend("web")]}]),
    );
    told.put(access("infra", "g", 64));
    let text = told.told(Kind::HTTPRoute, "r");
    assert!(
        text.contains("one object may need 1 MiB of an Envoy's memory"),
        "16 rules, each with 64 networks: {text}"
    );
    assert_eq!(told.told(Kind::TLSRoute, "t"), "", "it has no requests");
    told.put(access("infra", "g", 1));
    assert_eq!(told.told(Kind::HTTPRoute, "r"), "", "there is room again");
    told.put(access("a", "g", 64));
    assert_eq!(
        told.told(Kind::HTTPRoute, "r"),
        "",
        "there is no such Gateway in its namespace"
    );
    told.put(access("infra", "g", 64));
    assert_ne!(told.told(Kind::HTTPRoute, "r"), "", "it is refused again");
    let key = ObjectKey::new(Kind::AccessPolicy, ObjectName::new("infra", "p"));
    told.engine
        .apply(vec![Change::delete(key)], SystemTime::UNIX_EPOCH);
    assert_eq!(told.told(Kind::HTTPRoute, "r"), "", "the policy is gone");
}

#[test]
fn a_policy_of_a_default_gateway_counts_there_and_harms_no_other_place_of_a_route() {
    let mut limits = Limits::default();
    limits.namespace.envoy_mib = 4;
    let mut told = Told::within(limits.clone());
    told.engine = Engine::new(Settings {
        limits,
        channel: gatewright_objects::channel::Channel::Experimental,
        ..Settings::new("c", Vec::new())
    });
    told.put(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "infra", "name": "open"}, "spec": {"defaultGateways": "Allow"}}),
    );
    let parameters = json!({"group": "gatewright.io", "kind": "GatewayParameters",
        "namespace": "infra", "name": "open"});
    told.put(
        json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "open"},
        "spec": {"controllerName": "c", "parametersRef": parameters}}),
    );
    let from = json!({"namespaces": {"from": "All"}});
    let http = json!([{"name": "http", "protocol": "HTTP", "port": 80, "allowedRoutes": from}]);
    told.gateway("infra", "g", 1, http.clone());
    told.put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"namespace": "b", "name": "d"},
        "spec": {"gatewayClassName": "open", "defaultScope": "All", "listeners": http}}));
    let key = ObjectKey::new(Kind::HTTPRoute, ObjectName::new("a", "r"));
    let rules: Vec<Value> = (0..10).map(|_| edits(1, 1)).collect();
    let hosts: Vec<String> = (0..16).map(|host| format!("h{host}.org")).collect();
    told.put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"namespace": "a", "name": "r"},
        "spec": {"hostnames": hosts, "rules": rules, "useDefaultGateways": "All",
            "parentRefs": [{"name": "g", "namespace": "infra"}]}}));
    let reasons = |told: &Told| {
        let status = told.engine.status(&key).expect("a status");
        let StatusBody::Route(status) = status.body else {
            panic!("a route's")
        };
        let parents = status.parents.iter();
        parents.map(|(_, all)| all[0].reason).collect::<Vec<_>>()
    };
    assert_eq!(reasons(&told), [Reason::Accepted, Reason::Accepted]);
    told.put(access("b", "d", 64));
    assert_eq!(
        reasons(&told),
        [Reason::Accepted, Reason::LimitReached],
        "160 rules with 64 networks are too much for the default Gateway alone"
    );
    told.put(access("b", "d", 1));
    assert_eq!(
        reasons(&told),
        [Reason::Accepted, Reason::Accepted],
        "there is room again"
    );
}

#[test]
fn the_server_of_a_gateways_policy_counts_for_the_routes_there() {
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            clusters: 1,
            ..Limits::default().namespace
        },
        ..Limits::default()
    });
    let rules = json!([{"backendRefs": [backend("web")]}]);
    told.route("HTTPRoute", "r", 0, &["a.org"], rules);
    assert_eq!(told.told(Kind::HTTPRoute, "r"), "", "one cluster");
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"});
    told.put(json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "infra", "name": "id"}, "spec": {"ports": [{"port": 80}]}}));
    let remote = json!({"uri": "https://id.org/keys", "backendRef": {"name": "id", "port": 80}});
    told.put(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "AccessPolicy",
        "metadata": {"namespace": "infra", "name": "p"},
        "spec": {"targetRefs": [target],
            "jwt": {"issuer": "id", "jwks": {"remote": remote}}}}),
    );
    let text = told.told(Kind::HTTPRoute, "r");
    assert!(text.contains("2 clusters"), "{text}");
}
