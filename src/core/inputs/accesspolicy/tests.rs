use serde_json::{Value, json};

use super::*;
use crate::inputs::{Kind, Object, ObjectKey};
use crate::model::ObjectName;

fn written(spec: Value) -> Value {
    let mut spec = spec;
    if spec["targetRefs"].is_null() {
        spec["targetRefs"] =
            json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop"}]);
    }
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "AccessPolicy",
        "metadata": {"namespace": "a", "name": "p"}, "spec": spec})
}

fn policy(spec: Value) -> AttachedPolicy {
    match Object::parse(written(spec)) {
        Ok(Object::AttachedPolicy(policy)) => policy,
        other => panic!("{other:?}"),
    }
}

fn rules_of(spec: Value) -> Result<AccessRules, String> {
    access(policy(spec).rules)
}

fn access(rules: AttachedRules) -> Result<AccessRules, String> {
    match rules {
        AttachedRules::Access(rules) => rules,
        other @ AttachedRules::Traffic(_) => panic!("{other:?}"),
    }
}

#[test]
fn networks_are_read() {
    let rules = rules_of(json!({"clientAddress":
        {"allow": ["198.51.100.0/24", "2001:db8::/32", "198.51.100.0/24"], "deny": ["198.51.100.7/32"]}}));
    let addresses = rules.expect("valid").addresses.expect("a list");
    assert_eq!(addresses.allow.len(), 2, "each once");
    assert_eq!(addresses.deny.len(), 1, "one is denied");
}

#[test]
fn a_value_that_cannot_be_carried_out_is_kept_with_its_reason() {
    let many: Vec<String> = (0..65).map(|n| format!("10.0.{n}.0/24")).collect();
    for (spec, told) in [
        (json!({}), "clientAddress is needed"),
        (json!({"clientAddress": {}}), "allow or deny is needed"),
        (
            json!({"clientAddress": {"allow": ["10.0.0.1/8"]}}),
            "clientAddress.allow[0]: 10.0.0.1/8: expected 10.0.0.0/8 or 10.0.0.1/32",
        ),
        (
            json!({"clientAddress": {"deny": ["10.0.0.0/8", "home"]}}),
            "clientAddress.deny[1]: \"home\": expected a network",
        ),
        (
            json!({"clientAddress": {"allow": many}}),
            "clientAddress.allow: expected at most 64 networks, found 65",
        ),
    ] {
        let error = rules_of(spec.clone()).expect_err("it is refused");
        assert!(error.contains(told), "{spec}: {error}");
    }
}

#[test]
fn targets_are_of_the_kinds_that_have_hosts() {
    let group = "gateway.networking.k8s.io";
    let targets = json!([
        {"group": group, "kind": "Gateway", "name": "edge", "sectionName": "https"},
        {"group": group, "kind": "HTTPRoute", "name": "shop"},
    ]);
    let list = json!({"allow": ["10.0.0.0/8"]});
    let read = policy(json!({"targetRefs": targets, "clientAddress": list}));
    let edge = ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge"));
    assert!(read.targets[0].covers(&edge, Some("https")), "the listener");
    assert!(!read.targets[0].covers(&edge, Some("http")), "no other");
    for (targets, told) in [
        (json!([]), "1 to 16 are needed"),
        (
            json!([{"group": "", "kind": "Service", "name": "web"}]),
            "expected one of Gateway, ListenerSet, HTTPRoute, GRPCRoute",
        ),
    ] {
        let object = written(json!({"targetRefs": targets, "clientAddress": list}));
        let error = Object::parse(object)
            .expect_err("it is refused")
            .to_string();
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn a_policy_with_an_unknown_field_keeps_its_targets() {
    let group = "gateway.networking.k8s.io";
    let object = written(
        json!({"targetRefs": [{"group": group, "kind": "Gateway", "name": "edge"}],
        "clientAddress": {"allow": 7}}),
    );
    let Ok(Object::AttachedPolicy(policy)) = Object::parse_admitted(object) else {
        panic!("it is salvaged")
    };
    assert_eq!(policy.targets.len(), 1, "the Gateway");
    let error = access(policy.rules).expect_err("nobody is admitted");
    assert!(error.contains("cannot be read"), "{error}");
}
