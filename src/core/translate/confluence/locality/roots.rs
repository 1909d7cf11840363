//! Locality of the roots of client certificates.

use super::*;

/// A Gateway that validates client certificates, with `count` hosts, and new client roots for it.
fn guarded(count: usize) -> (Engine, Change) {
    let mut engine = engine();
    let validation =
        json!({"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]});
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    let spec = json!({"gatewayClassName": "ours", "listeners": listeners,
        "tls": {"frontend": {"default": {"validation": validation}}},
        "allowedListeners": {"namespaces": {"from": "Same"}}});
    fn roots(pem: &str) -> Change {
        Change::put(object(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "a", "name": "ca"},
            "data": {"ca.crt": pem}}),
        ))
    }
    let mut changes = vec![
        Change::put(classes()[0].clone()),
        Change::put(gateway_object("Gateway", "a", "g", 0, spec)),
        roots(&ROOTS[0]),
    ];
    changes.extend((0..count).flat_map(host));
    let delta = engine.apply(changes, now());
    let checked = delta.resources.values().any(|resource| match resource {
        Some(Resource::Frontend(frontend)) => {
            format!("{:?}", frontend.kind).contains("clients=a/g")
        }
        _ => false,
    });
    assert!(checked, "clients are checked");
    (engine, roots(&ROOTS[1]))
}

#[test]
fn other_roots_are_one_resource_however_many_hosts_there_are() {
    let [few, many] = [8, 400].map(|count| {
        let (mut engine, roots) = guarded(count);
        let before = engine.counters();
        let delta = engine.apply(vec![roots], now());
        let keys: Vec<String> = delta
            .resources
            .keys()
            .map(|key| format!("{key:?}"))
            .collect();
        assert_eq!(keys.len(), 1, "{keys:?}");
        assert!(
            keys[0].contains("Roots") && delta.statuses.is_empty(),
            "{keys:?}"
        );
        engine.counters().since(&before)
    });
    assert_eq!(few, many);
}
