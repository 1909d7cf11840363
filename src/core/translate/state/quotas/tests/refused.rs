//! What a number refuses takes no memory from others.

use serde_json::{Value, json};

use super::{Kind, Limits, NamespaceLimits, Told, edits};

#[test]
fn a_route_that_a_number_refuses_leaves_its_memory_to_the_others() {
    let gold = json!({"namespaces": {"matchLabels": {"tier": "gold"}}, "limits": {"regexes": 64, "envoyMib": 4}});
    let gold = serde_json::from_value(gold).expect("an override");
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            envoy_mib: 4,
            regexes: 0,
            ..Limits::default().namespace
        },
        overrides: vec![gold],
        ..Limits::default()
    });
    let mut expression = edits(32, 16);
    expression["matches"][0]["path"] = json!({"type": "RegularExpression", "value": "/x[0-9]"});
    for number in 0..4 {
        let host = format!("x{number}.org");
        let rules = json!([expression]);
        told.route("HTTPRoute", &format!("x{number}"), number, &[&host], rules);
        let host = format!("y{number}.org");
        let rules = json!([edits(32, 16)]);
        told.route(
            "HTTPRoute",
            &format!("y{number}"),
            10 + number,
            &[&host],
            rules,
        );
    }
    for number in 0..4 {
        let text = told.told(Kind::HTTPRoute, &format!("x{number}"));
        assert!(text.contains("limits.namespace.regexes 0"), "{text}");
        assert_eq!(told.told(Kind::HTTPRoute, &format!("y{number}")), "");
    }
    let namespace = |labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": labels}});
    told.put(namespace(json!({"tier": "gold"})));
    assert_eq!(told.told(Kind::HTTPRoute, "x3"), "", "it may have them");
    let text = told.told(Kind::HTTPRoute, "y3");
    assert!(text.contains("limits.namespace.envoyMib, 4 MiB"), "{text}");
    told.put(namespace(json!({})));
    assert_ne!(told.told(Kind::HTTPRoute, "x3"), "", "it may not again");
    assert_eq!(told.told(Kind::HTTPRoute, "y3"), "");
    told.remove(Kind::HTTPRoute, "x3");
    assert_eq!(told.told(Kind::HTTPRoute, "y3"), "");
}

#[test]
fn a_gateway_that_a_number_refuses_leaves_its_memory_to_routes() {
    let mut told = Told::within(Limits {
        namespace: NamespaceLimits {
            envoy_mib: 8,
            ports: 8,
            ..Limits::default().namespace
        },
        ..Limits::default()
    });
    let listeners = |first: u16| -> Value {
        let ports = first..first + 8;
        ports
            .map(|port| json!({"name": format!("l{port}"), "protocol": "HTTP", "port": port}))
            .collect()
    };
    told.gateway("a", "old", 1, listeners(1000));
    let rules = json!([edits(32, 16)]);
    for number in 0..5 {
        let host = format!("x{number}.org");
        told.route(
            "HTTPRoute",
            &format!("x{number}"),
            number,
            &[&host],
            rules.clone(),
        );
    }
    assert_eq!(told.told(Kind::HTTPRoute, "x4"), "");
    for number in 2..9 {
        told.gateway(
            "a",
            &format!("young{number}"),
            number,
            listeners(2000 + 8 * u16::try_from(number).expect("few")),
        );
    }
    let text = told.told_gateway("young8");
    assert!(text.contains("limits.namespace.ports 8"), "{text}");
    assert_eq!(told.told(Kind::HTTPRoute, "x4"), "");
    told.remove(Kind::Gateway, "old");
    assert_eq!(told.told_gateway("young2"), "", "it has the ports now");
    assert_ne!(told.told_gateway("young3"), "");
    assert_eq!(told.told(Kind::HTTPRoute, "x4"), "");
}
