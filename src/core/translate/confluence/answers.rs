//! DirectResponses among the objects, and the ConfigMaps with their bodies.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::locality::{Work, host, hosting, measured};
use super::{Change, NAMESPACES, gateway_object, now, object, pick};
use gatewright_objects::inputs::Object;

/// The filter of a rule: mostly none, else an answer that may be there.
pub(super) fn answer() -> impl Strategy<Value = Option<Value>> {
    let filter = pick(&["sorry", "sorry", "gone"]).prop_map(|name| {
        let reference = json!({"group": "gatewright.io", "kind": "DirectResponse", "name": name});
        json!({"type": "ExtensionRef", "extensionRef": reference})
    });
    proptest::option::weighted(0.3, filter)
}

/// DirectResponses, and ConfigMaps with or without the key that they name.
pub(super) fn direct_response() -> impl Strategy<Value = Object> {
    let map = (
        pick(NAMESPACES),
        pick(&["page", "other"]),
        pick(&["hello", "bye"]),
    );
    let map = map.prop_map(|(namespace, key, text)| {
        object(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": namespace, "name": "pages"}, "data": {key: text}}))
    });
    let body = pick(&["none", "inline", "map", "map", "wrong"]);
    let response = (pick(NAMESPACES), 503u16..505, body).prop_map(|(namespace, status, body)| {
        let mut spec = json!({"statusCode": status});
        match body {
            "inline" => spec["body"] = json!({"inline": "hello"}),
            "map" => spec["body"] = json!({"configMapRef": {"name": "pages", "key": "page"}}),
            // It has neither.
            "wrong" => spec["body"] = json!({}),
            _ => {}
        }
        object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "DirectResponse",
            "metadata": {"namespace": namespace, "name": "sorry"}, "spec": spec}),
        )
    });
    prop_oneof![1 => map, 2 => response]
}

/// The work that a ConfigMap with the body of one host's answer takes, and the DirectResponse
/// itself, when `count` hosts have routes: another body, another key of the same ConfigMap, and
/// another status.
fn work_of_an_answer(count: usize) -> Vec<Work> {
    let mut engine = hosting(count, host);
    let reference = json!({"group": "gatewright.io", "kind": "DirectResponse", "name": "sorry"});
    let filter = json!({"type": "ExtensionRef", "extensionRef": reference});
    let spec = json!({"parentRefs": [{"name": "g"}], "hostnames": ["sorry.example.org"],
        "rules": [{"filters": [filter]}]});
    fn pages(page: &str, other: &str) -> Vec<Change> {
        vec![Change::put(object(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "a", "name": "pages"},
            "data": {"page": page, "other": other}}),
        ))]
    }
    fn sorry(status: u16) -> Vec<Change> {
        let body = json!({"configMapRef": {"name": "pages", "key": "page"}});
        vec![Change::put(object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "DirectResponse",
            "metadata": {"namespace": "a", "name": "sorry"}, "spec": {"statusCode": status, "body": body}}),
        ))]
    }
    let mut changes = vec![Change::put(gateway_object(
        "HTTPRoute",
        "a",
        "sorry",
        0,
        spec,
    ))];
    changes.extend(pages("one", "one"));
    changes.extend(sorry(503));
    engine.apply(changes, now());
    measured(
        &mut engine,
        [pages("two", "one"), pages("two", "two"), sorry(500)],
    )
}

#[test]
fn the_work_for_an_answer_does_not_grow_with_the_number_of_hosts() {
    let small = work_of_an_answer(100);
    assert_eq!(small, work_of_an_answer(1_000));
    let [(body, one, _), (other, none, _), (status, two, _)] = small[..] else {
        panic!("three steps: {small:?}")
    };
    assert_eq!(body.routes, 1, "the route is resolved again: {small:?}");
    assert_eq!(one, 1, "its host is sent: {small:?}");
    assert_eq!(other.units, 0, "another key is no concern of it: {small:?}");
    assert_eq!(none, 0, "nothing is sent: {small:?}");
    assert_eq!(status.routes, 1, "the route is resolved again: {small:?}");
    assert_eq!(two, 1, "its host is sent: {small:?}");
}
