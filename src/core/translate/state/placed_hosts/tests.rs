use serde_json::{Value, json};

use crate::https_site::{Site, https};
use gatewright_objects::inputs::{Kind, ObjectKey};
use gatewright_objects::model::{FrontendId, ObjectName};

use crate::Change;

fn frontend() -> FrontendId {
    FrontendId::tcp(ObjectName::new("a", "edge"), 443)
}

fn route(name: &str, hostname: &str, value: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "a", "name": name},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [hostname],
            "rules": [{"matches": [{"path": {"value": value}}]}]}})
}

fn policy(name: &str) -> Value {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name});
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "AccessPolicy",
        "metadata": {"namespace": "a", "name": name},
        "spec": {"targetRefs": [target], "clientAddress": {"allow": ["10.0.0.0/8"]}}})
}

fn without(name: &str) -> Change {
    Change::delete(ObjectKey::new(
        Kind::AccessPolicy,
        ObjectName::new("a", name),
    ))
}

/// A Gateway with a wildcard, a route for it, and one for a host under it.
fn site() -> Site {
    let mut site = Site::new();
    site.secret("a", "1");
    site.gateway("a", 0, &[https("*.example.org", json!({}))], json!({}));
    site.put(route("wide", "*.example.org", "/"));
    site.put(route("shop", "shop.example.org", "/"));
    site
}

impl Site {
    fn scoped(&self) -> Vec<String> {
        let scopes = self.published.scopes(&frontend());
        scopes.keys().map(ToString::to_string).collect()
    }

    fn tabled(&self) -> Vec<String> {
        let tables = self.published.tables(&frontend());
        tables.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn a_host_with_a_policy_leaves_the_table_that_changes_with_others() {
    let mut site = site();
    assert_eq!(site.tabled(), ["*.example.org", "shop.example.org"]);
    site.put(policy("shop"));
    assert_eq!(
        site.tabled(),
        ["*.example.org"],
        "nothing of it is read anew"
    );
    assert_eq!(site.scoped(), ["shop.example.org"]);
    site.apply(without("shop"));
    assert_eq!(site.tabled(), ["*.example.org", "shop.example.org"]);
    assert!(site.scoped().is_empty(), "it is light again");
}

#[test]
fn where_a_wildcard_has_a_policy_exact_hosts_have_scopes() {
    let mut site = site();
    site.put(policy("wide"));
    assert_eq!(site.tabled(), ["*.example.org"]);
    assert_eq!(site.scoped(), ["shop.example.org"]);
    site.apply(without("wide"));
    assert_eq!(site.tabled(), ["*.example.org", "shop.example.org"]);
    assert!(site.scoped().is_empty(), "they share a table again");
}
