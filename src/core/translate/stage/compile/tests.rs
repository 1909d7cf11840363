use serde_json::{Value, json};

use crate::https_site::{Site, https};
use gatewright_objects::model::{FrontendId, FrontendKind, Hostname, ObjectName};

fn route(name: &str, matches: Value) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "a", "name": name},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [format!("{name}.example.org")],
            "rules": [{"matches": [matches]}]}})
}

/// The chain of a host.
fn chain(site: &Site, name: &str) -> String {
    let id = FrontendId::tcp(ObjectName::new("a", "edge"), 443);
    let frontend = site.published.frontend(&id).expect("a frontend");
    let FrontendKind::Tls { sni_matcher, .. } = &frontend.kind else {
        panic!("TLS")
    };
    let name = Hostname::parse(&format!("{name}.example.org")).expect("a hostname");
    sni_matcher[&name].to_string()
}

#[test]
fn a_host_that_matches_an_identity_header_has_a_chain_that_removes_them_late() {
    let mut site = Site::new();
    site.secret("a", "1");
    let listeners = ["one", "two"].map(|name| https(&format!("{name}.example.org"), json!({})));
    site.gateway("a", 0, &listeners, json!({}));
    site.put(route("one", json!({"path": {"value": "/"}})));
    site.put(route(
        "two",
        json!({"headers": [{"name": "X-Real-IP", "value": "192.0.2.1"}]}),
    ));
    assert_eq!(chain(&site, "one"), "https");
    assert_eq!(chain(&site, "two"), "https;identity=late");
    let other = json!({"headers": [{"name": "X-Forwarded-Proto", "value": "https"}]});
    site.put(route("two", other));
    assert_eq!(chain(&site, "two"), "https", "Envoy writes that one");
}
