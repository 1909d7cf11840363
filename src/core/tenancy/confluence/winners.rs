//! Tests of hosts that several claims want.

use super::*;

#[test]
fn removing_the_winner_promotes_exactly_the_next_and_narrows_where_somebody_else_serves_or_in_conflict()
 {
    winners("cilium");
    winners("gatewright");
}

fn winners(class: &str) {
    let mut engine = engine();
    let routes = [("cozy-x", "z"), ("tenant-a", "m"), ("tenant-a-c", "a")];
    let mut changes = tenant_with_namespaces(json!({"apex": "a.org", "gatewayClassName": class}));
    changes.extend(routes.map(|(namespace, name)| http(namespace, name, &["h.a.org"])));
    engine.apply(changes);
    for (index, (namespace, route)) in routes.iter().enumerate() {
        assert_eq!(
            engine.owner(&name(), &Hostname::parse("h.a.org").expect("a name")),
            Some(key(namespace, route))
        );
        for (loser_namespace, loser) in &routes[index + 1..] {
            assert_eq!(reason(&engine, loser_namespace, loser), "HostnameConflict");
        }
        let narrow = index < 2 || class == "cilium";
        assert_eq!(
            selector(&engine),
            if narrow {
                json!(namespace)
            } else {
                Value::Null
            }
        );
        engine.apply(vec![gone(http(namespace, route, &[]))]);
    }
    assert!(
        listeners(&engine)
            .iter()
            .all(|listener| listener["protocol"] == "HTTP")
    );
}

#[test]
fn of_two_hosts_with_one_listener_name_the_later_is_told() {
    let mut engine = engine();
    engine.apply(tenant_with_namespaces(json!({"apex": "a.org"})));
    let spec = json!({"apex": "alice.example.org"});
    engine.apply(vec![
        namespace("tenant-a", "tenant-a", "alice.example.org"),
        tenant("tenant-a", spec),
    ]);
    engine.apply(vec![http(
        "tenant-a",
        "late",
        &["app.154363.alice.example.org"],
    )]);
    engine.apply(vec![http(
        "tenant-a",
        "early",
        &["app.134599.alice.example.org"],
    )]);
    assert_eq!(
        reason(&engine, "tenant-a", "late"),
        "Accepted",
        "the first host is accepted"
    );
    assert_eq!(
        reason(&engine, "tenant-a", "early"),
        "NameCollision",
        "the later one is told"
    );
    engine.apply(vec![gone(http("tenant-a", "late", &[]))]);
    assert_eq!(reason(&engine, "tenant-a", "early"), "Accepted");
}

#[test]
fn under_a_wildcard_the_contested_host_gets_a_listener_of_its_own() {
    let mut engine = engine();
    let spec = json!({"apex": "a.org", "certMode": "existingSecret", "wildcardSecretRef": {"name": "w"},
        "gatewayClassName": "gatewright"});
    engine.apply(tenant_with_namespaces(spec));
    let fixed = [
        "http",
        "http-apex",
        "https",
        "https-apex",
        &names::child_listener("b.a.org"),
    ];
    assert_eq!(names_of(&engine), fixed);
    engine.apply(vec![
        http("tenant-a", "wild", &["*.b.a.org"]),
        http("tenant-a-b", "own", &["x.b.a.org"]),
    ]);
    assert_eq!(reason(&engine, "tenant-a-b", "own"), "HostnameConflict");
    let contested = names::host_listener("x.b.a.org");
    assert!(names_of(&engine).contains(&contested));
    engine.apply(vec![gone(http("tenant-a", "wild", &[]))]);
    assert_eq!(reason(&engine, "tenant-a-b", "own"), "Accepted");
    assert!(!names_of(&engine).contains(&contested));
}
