use serde_json::{Value, json};

use super::*;
use crate::inputs::Object;
use crate::settings::{LimitUnit, LimitedBy, RateLimit};

const GROUP: &str = "gateway.networking.k8s.io";

fn written(targets: Value, spec: Value) -> Value {
    let mut spec = spec;
    spec["targetRefs"] = targets;
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
        "metadata": {"namespace": "a", "name": "p"}, "spec": spec})
}

fn of_route() -> Value {
    json!([{"group": GROUP, "kind": "HTTPRoute", "name": "shop", "sectionName": "api"}])
}

fn read_on_route(spec: Value) -> Result<TrafficRules, String> {
    match Object::parse_admitted(written(of_route(), spec)) {
        Ok(Object::Policy(policy)) => match policy.rules {
            PolicyRules::Traffic(rules) => rules,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn limited(limit: Value, by: Value) -> Value {
    json!({"rateLimit": [{"limit": limit, "by": by}]})
}

#[test]
fn limits_are_read() {
    let limits = json!({"rateLimit": [
        {"limit": {"requests": 20, "per": "Second", "burst": 40}, "by": {"type": "ClientAddress"}},
        {"limit": {"requests": 1000, "per": "Hour"},
            "by": {"type": "Header", "header": {"name": "X-Api-Key"}, "maxClients": 50}},
        {"limit": {"requests": 5, "per": "Minute"}, "by": {"type": "Everyone"}},
    ]});
    let read = read_on_route(limits).expect("valid");
    let expected = [
        RateLimit {
            requests: 20,
            per: LimitUnit::Second,
            burst: 40,
            by: LimitedBy::ClientAddress { clients: 1_000 },
        },
        RateLimit {
            requests: 1_000,
            per: LimitUnit::Hour,
            burst: 1_000,
            by: LimitedBy::Header {
                name: "x-api-key".to_owned(),
                clients: 50,
            },
        },
        RateLimit {
            requests: 5,
            per: LimitUnit::Minute,
            burst: 5,
            by: LimitedBy::Everyone,
        },
    ];
    assert_eq!(*read.rate_limit.expect("limits").limits, expected);
}

#[test]
fn a_value_that_cannot_be_carried_out_is_kept_with_its_field() {
    let limit = json!({"requests": 1, "per": "Second"});
    let everyone = json!({"type": "Everyone"});
    let one = json!({"limit": limit, "by": everyone});
    for (spec, told) in [
        (
            json!({}),
            "one of rateLimit, compression, responseOverride, requestBody, rewrite, headers and bandwidthLimit is needed",
        ),
        (json!({"rateLimit": []}), "rateLimit: 1 to 8 limits"),
        (
            json!({"rateLimit": vec![one; 9]}),
            "rateLimit: 1 to 8 limits are expected, found 9",
        ),
        (
            limited(json!({"requests": 0, "per": "Second"}), everyone.clone()),
            "rateLimit[0].limit.requests: 1 to 1000000 is expected, found 0",
        ),
        (
            limited(
                json!({"requests": 1, "per": "Second", "burst": 1_000_001}),
                everyone.clone(),
            ),
            "rateLimit[0].limit.burst",
        ),
        (
            limited(json!({"requests": 1, "per": "Day"}), everyone),
            "cannot be read",
        ),
        (
            limited(limit.clone(), json!({"type": "Header"})),
            "rateLimit[0].by.header: type Header needs it",
        ),
        (
            limited(
                limit.clone(),
                json!({"type": "ClientAddress", "header": {"name": "x"}}),
            ),
            "rateLimit[0].by.header: it belongs to type Header",
        ),
        (
            limited(
                limit.clone(),
                json!({"type": "Header", "header": {"name": "a%b"}}),
            ),
            "rateLimit[0].by.header.name",
        ),
        (
            limited(limit.clone(), json!({"type": "Everyone", "maxClients": 7})),
            "rateLimit[0].by.maxClients",
        ),
        (
            limited(limit, json!({"type": "ClientAddress", "maxClients": 0})),
            "rateLimit[0].by.maxClients: 1 to 1000000",
        ),
        (
            json!({"loadBalancer": {"type": "Random"}}),
            "loadBalancer: it belongs to Services, and targetRefs has a HTTPRoute",
        ),
        (
            json!({"healthCheck": {}}),
            "healthCheck: it belongs to Services",
        ),
    ] {
        let error = read_on_route(spec.clone()).expect_err("it is refused");
        assert!(error.contains(told), "{spec}: {error}");
    }
}

/// All fields of the definition exist in the type.
#[test]
fn the_definition_has_the_fields_of_the_type() {
    let crd: Value = serde_yaml_ng::from_str(TRAFFIC_POLICY_CRD).expect("the definition is YAML");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let item = &schema["properties"]["rateLimit"]["items"];
    fn fields(schema: &Value) -> Vec<&String> {
        schema["properties"]
            .as_object()
            .expect("fields")
            .keys()
            .collect()
    }
    assert_eq!(fields(item), ["by", "limit"]);
    let limit = &item["properties"]["limit"];
    assert_eq!(fields(limit), ["burst", "per", "requests"]);
    let by = &item["properties"]["by"];
    assert_eq!(fields(by), ["header", "maxClients", "type"]);
    let types = &by["properties"]["type"]["enum"];
    assert_eq!(*types, json!(["Everyone", "ClientAddress", "Header"]));
}
