//! The changes to bodies of a rule, with their policies.

use serde_json::json;

use super::{held, object};

#[test]
fn the_compression_of_a_rule_is_told_with_its_policy() {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
    let compression = json!({"types": ["text/html", "text/css"], "algorithms": ["Gzip", "Brotli"]});
    let policy = object(
        "gatewright.io/v1alpha1",
        "TrafficPolicy",
        "small",
        json!({"spec": {"targetRefs": [target], "compression": compression}}),
    );
    let told = held(vec![policy], "compression").expect("a link");
    assert_eq!(
        told,
        "TrafficPolicy a/small: Gzip or Brotli from 1024 bytes on, for text/html, text/css"
    );
}

#[test]
fn the_answers_in_place_of_errors_are_told_with_their_policy() {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
    let statuses = json!([{"value": 404}, {"type": "Range", "range": {"start": 500, "end": 599}}]);
    let page = json!({"contentType": "text/html", "statusCode": 503, "body": {"inline": "sorry"}});
    let policy = object(
        "gatewright.io/v1alpha1",
        "TrafficPolicy",
        "pages",
        json!({"spec": {"targetRefs": [target],
            "responseOverride": [{"match": {"statusCodes": statuses}, "response": page}]}}),
    );
    let told = held(vec![policy], "response override").expect("a link");
    assert_eq!(
        told,
        "TrafficPolicy a/pages: 404, 500-599 as 503 with 5 bytes of text/html"
    );
}

#[test]
fn the_rewrite_of_a_rule_is_told_with_its_policy() {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
    let path = json!({"pattern": "/shop/(.*)", "substitution": r"/\1"});
    let policy = object(
        "gatewright.io/v1alpha1",
        "TrafficPolicy",
        "paths",
        json!({"spec": {"targetRefs": [target],
            "rewrite": {"path": path, "hostname": {"type": "Backend"}}}}),
    );
    let told = held(vec![policy], "rewrite").expect("a link");
    assert_eq!(
        told,
        r"TrafficPolicy a/paths: a path that /shop/(.*) matches becomes /\1; a backend outside of the cluster gets its own name as the host; a URLRewrite of the rule comes first"
    );
}

#[test]
fn headers_and_the_bandwidth_of_a_rule_are_told_with_their_policy() {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
    let header = |name: &str, kind: &str| json!({"name": name, "value": {"type": kind}});
    let headers = json!({"request": [header("X-Real-IP", "ClientAddress"),
        header("X-Cert", "ClientCertificate")], "response": [header("x-asked", "Host")]});
    let policy = || {
        object(
            "gatewright.io/v1alpha1",
            "TrafficPolicy",
            "both",
            json!({"spec": {"targetRefs": [target], "headers": headers,
                "bandwidthLimit": {"responseKibPerSecond": 512}}}),
        )
    };
    for (step, expected) in [
        (
            "request headers",
            "TrafficPolicy a/both: x-real-ip: ClientAddress, no x-cert, since the listener verifies no clients",
        ),
        ("response headers", "TrafficPolicy a/both: x-asked: Host"),
        (
            "bandwidth limit",
            "TrafficPolicy a/both: 512 KiB a second of bodies of responses, by each Envoy",
        ),
    ] {
        let told = held(vec![policy()], step).expect("a link");
        assert_eq!(told, expected, "{step}");
    }
}
