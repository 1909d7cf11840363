//! Locality of policies on Gateways, ListenerSets and routes.

use super::*;
use gatewright_objects::inputs::Kind;

/// The work of AccessPolicies on a route, and on a ListenerSet, of one of `count` hosts, and of one
/// of another namespace on a Gateway that is not there.
fn work_of_an_access_policy(count: usize) -> Vec<Work> {
    let mut engine = hosting(count, host);
    fn policy(namespace: &str, kind: &str, name: &str, network: &str) -> Vec<Change> {
        let target = json!({"group": "gateway.networking.k8s.io", "kind": kind, "name": name});
        vec![Change::put(object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "AccessPolicy",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"targetRefs": [target], "clientAddress": {"allow": [network]}}}),
        ))]
    }
    fn secret(password: &str) -> Vec<Change> {
        vec![Change::put(object(
            json!({"apiVersion": "v1", "kind": "Secret",
            "type": "gatewright.io/htpasswd", "metadata": {"namespace": "a", "name": "users"},
            "stringData": {".htpasswd": format!("a:{{SHA}}{}=", password.repeat(27))}}),
        ))]
    }
    fn with_users() -> Vec<Change> {
        let target =
            json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "r8"});
        vec![Change::put(object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "AccessPolicy",
            "metadata": {"namespace": "a", "name": "users"},
            "spec": {"targetRefs": [target], "basicAuth": {"users": {"name": "users"}}}}),
        ))]
    }
    let steps = [
        with_users(),
        secret("a"),
        secret("b"),
        policy("a", "HTTPRoute", "r7", "10.0.0.0/8"),
        policy("a", "HTTPRoute", "r7", "10.0.0.0/9"),
        policy("a", "ListenerSet", "s7", "10.0.0.0/8"),
        policy("b", "Gateway", "g", "10.0.0.0/8"),
    ];
    measured(&mut engine, steps)
}

#[test]
fn the_work_for_an_access_policy_does_not_grow_with_the_number_of_hosts() {
    let small = work_of_an_access_policy(100);
    assert_eq!(small, work_of_an_access_policy(1_000));
    let [closed, opened, rotated, route, changed, set, stranger] = small[..] else {
        panic!("seven steps: {small:?}")
    };
    for (work, resources, statuses) in [closed, opened, rotated, route, changed, set] {
        assert_eq!(work.units, 1, "{small:?}");
        assert_eq!(resources, 1, "the scope of the host: {small:?}");
        assert!(statuses <= 2, "of the policy and its target: {small:?}");
    }
    assert_eq!(stranger.0.units, 0, "{small:?}");
    assert_eq!(stranger.1, 0, "{small:?}");
}

/// The work of TrafficPolicies on a route of one of `count` hosts, of a second one, which loses, and
/// of the end of the first.
fn work_of_a_traffic_policy(count: usize) -> Vec<Work> {
    let mut engine = hosting(count, host);
    fn policy(name: &str, requests: u32) -> Vec<Change> {
        let target =
            json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "r7"});
        let limit = json!({"requests": requests, "per": "Second"});
        vec![Change::put(object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
            "metadata": {"namespace": "a", "name": name},
            "spec": {"targetRefs": [target],
                "rateLimit": [{"limit": limit, "by": {"type": "Everyone"}}]}}),
        ))]
    }
    let first = ObjectKey::new(Kind::TrafficPolicy, ObjectName::new("a", "p"));
    let steps = [
        policy("p", 10),
        policy("p", 20),
        policy("q", 30),
        vec![Change::delete(first)],
    ];
    measured(&mut engine, steps)
}

#[test]
fn the_work_for_a_traffic_policy_on_a_route_does_not_grow_with_the_number_of_hosts() {
    let small = work_of_a_traffic_policy(100);
    assert_eq!(small, work_of_a_traffic_policy(1_000));
    let [made, changed, second, deleted] = small[..] else {
        panic!("four steps: {small:?}")
    };
    for (work, resources, _) in [made, changed, deleted] {
        assert_eq!(work.units, 1, "{small:?}");
        assert_eq!(resources, 1, "the scope of the host: {small:?}");
    }
    assert_eq!(second.1, 0, "it has no effect: {small:?}");
    assert_eq!(second.2, 1, "its status: {small:?}");
}
