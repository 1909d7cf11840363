//! Locality of AccessPolicies.

use super::*;

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
    let steps = [
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
    let [route, changed, set, stranger] = small[..] else {
        panic!("four steps: {small:?}")
    };
    for (work, resources, statuses) in [route, changed, set] {
        assert_eq!(work.units, 1, "{small:?}");
        assert_eq!(resources, 1, "the scope of the host: {small:?}");
        assert!(statuses <= 1, "that of the policy: {small:?}");
    }
    assert_eq!(stranger.0.units, 0, "{small:?}");
    assert_eq!(stranger.1, 0, "{small:?}");
}
