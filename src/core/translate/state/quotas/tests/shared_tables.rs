//! What namespaces have in tables of others' listeners.

use serde_json::json;

use super::{GATEWAY, Kind, Limits, NamespaceLimits, Told, edits, time};

#[test]
fn a_namespace_has_a_sixteenth_of_its_memory_in_tables_of_others() {
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            envoy_mib: 32,
            ..Limits::default().namespace
        },
        ..Limits::default()
    });
    let wild = json!([{"name": "http", "protocol": "HTTPS", "port": 443, "hostname": "*.example.org",
        "tls": {"certificateRefs": [{"name": "wild"}]}, "allowedRoutes": {"namespaces": {"from": "All"}}}]);
    told.gateway("infra", "g", 1, wild.clone());
    let rules = json!([edits(32, 16)]);
    let wildcards = [
        "*.a.example.org",
        "*.b.example.org",
        "*.c.example.org",
        "*.d.example.org",
        "*.e.example.org",
    ];
    let exact = wildcards.map(|name| name.replace('*', "www"));
    let exact = exact.each_ref().map(String::as_str);
    told.route("HTTPRoute", "exact", 0, &exact, rules.clone());
    told.route("HTTPRoute", "few", 1, &wildcards[..2], rules.clone());
    told.route("HTTPRoute", "many", 2, &wildcards[2..], rules.clone());
    assert_eq!(told.told(Kind::HTTPRoute, "exact"), "", "each has a scope");
    assert_eq!(told.told(Kind::HTTPRoute, "few"), "");
    let text = told.told(Kind::HTTPRoute, "many");
    assert!(
        text.contains("a sixteenth of limits.namespace.envoyMib, 2 MiB in tables of other namespaces' listeners, this one needs 1.6 MiB"),
        "{text}"
    );
    told.gateway("a", "g", 1, wild);
    told.put(
        json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"namespace": "a", "name": "many",
            "creationTimestamp": time(2)}, "spec": {"hostnames": wildcards, "rules": rules, "parentRefs": [{"name": "g"}]}}),
    );
    assert_eq!(
        told.told(Kind::HTTPRoute, "many"),
        "",
        "in a table of its own"
    );
}
