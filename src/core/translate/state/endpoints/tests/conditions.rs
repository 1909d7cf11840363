//! Tests of the conditions of endpoints.

use super::*;

/// A slice of mallory's Service `web` with endpoints of her pods, each with `ready`, `serving` and
/// `terminating`.
fn conditioned(told: &mut Told, name: &str, endpoints: &[(&str, [Option<bool>; 3])]) {
    fn endpoint((address, [ready, serving, terminating]): &(&str, [Option<bool>; 3])) -> Value {
        json!({"addresses": [address], "targetRef": {"kind": "Pod", "namespace": "mallory", "name": pod_at(address)},
            "conditions": {"ready": ready, "serving": serving, "terminating": terminating}})
    }
    for (address, _) in endpoints {
        told.run("mallory", &pod_at(address), &[address]);
    }
    let mut slice = slice("mallory", "web", &[], 8080);
    slice["metadata"]["name"] = json!(name);
    slice["endpoints"] = endpoints.iter().map(endpoint).collect();
    told.put(slice);
}

#[test]
fn endpoints_that_terminate_and_serve_are_used_while_none_is_ready() {
    let mut told = Told::in_cluster();
    conditioned(&mut told, "web-1", &[("10.1.0.1", ENDING)]);
    assert_eq!(told.used(), ["10.1.0.1:8080"]);
    conditioned(
        &mut told,
        "web-2",
        &[("10.1.0.2", ENDING), ("10.1.0.3", READY)],
    );
    assert_eq!(
        told.used(),
        ["10.1.0.3:8080"],
        "one that is ready in any slice comes first"
    );
    conditioned(&mut told, "web-2", &[("10.1.0.2", ENDING)]);
    assert_eq!(
        told.used(),
        ["10.1.0.1:8080", "10.1.0.2:8080"],
        "of all slices"
    );
    conditioned(&mut told, "web-2", &[]);
    conditioned(&mut told, "web-1", &[]);
    assert!(told.used().is_empty(), "{:?}", told.used());
}

#[test]
fn conditions_that_are_absent_count_as_the_api_says() {
    for (conditions, expected) in [
        ([None, None, None], true),
        ([None, Some(false), Some(true)], true),
        ([Some(true), Some(false), Some(true)], true),
        ([Some(false), None, Some(true)], true),
        ([Some(false), Some(false), Some(true)], false),
        ([Some(false), Some(true), Some(false)], false),
        ([Some(false), Some(true), None], false),
        ([Some(false), None, None], false),
    ] {
        let mut told = Told::in_cluster();
        conditioned(&mut told, "web-1", &[("10.1.0.1", conditions)]);
        assert_eq!(
            !told.used().is_empty(),
            expected,
            "ready, serving, terminating: {conditions:?}"
        );
    }
}

#[test]
fn endpoints_that_terminate_may_be_used_as_ready_ones_may() {
    let mut told = Told::in_cluster();
    conditioned(
        &mut told,
        "web-1",
        &[("169.254.169.254", ENDING), ("10.1.0.1", ENDING)],
    );
    assert_eq!(told.used(), ["10.1.0.1:8080"]);
    assert!(told.refused("169.254.169.254"), "{:?}", told.verdict);
    conditioned(&mut told, "web-2", &[("10.1.0.2", READY)]);
    assert_eq!(told.used(), vec!["10.1.0.2:8080"], "it is not used");
    assert_eq!(told.verdict, None, "it is not used");
    conditioned(&mut told, "web-2", &[("127.0.0.1", READY)]);
    assert_eq!(
        told.used(),
        ["10.1.0.1:8080"],
        "a ready one that may not be used is none"
    );
    assert!(told.refused("127.0.0.1"), "{:?}", told.verdict);
    told.apply(deleted(Kind::Pod, "mallory", &pod_at("10.1.0.1")));
    assert!(told.used().is_empty(), "{:?}", told.used());
}
