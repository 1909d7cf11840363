use serde_json::{Value, json};

use crate::Change;
use crate::https_site::{Site, https};
use gatewright_objects::inputs::{Kind, ObjectKey};
use gatewright_objects::model::{FrontendId, ObjectName};

fn frontend() -> FrontendId {
    FrontendId::tcp(ObjectName::new("a", "edge"), 443)
}

fn route(namespace: &str, name: &str, hostname: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"parentRefs": [{"name": "edge", "namespace": "a"}], "hostnames": [hostname],
            "rules": [{"matches": [{"path": {"value": "/"}}]}]}})
}

/// A Gateway with a wildcard for all namespaces, and a route for it.
fn site() -> Site {
    let mut site = Site::new();
    site.secret("a", "1");
    let mut listener = https("*.example.org", json!({}));
    listener["allowedRoutes"] = json!({"namespaces": {"from": "All"}});
    site.gateway("a", 0, &[listener], json!({}));
    site.put(route("a", "wide", "*.example.org"));
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
fn hosts_of_one_namespace_share_a_table() {
    let mut site = site();
    site.put(route("a", "shop", "shop.example.org"));
    assert_eq!(site.tabled(), ["*.example.org", "shop.example.org"]);
    assert!(site.scoped().is_empty(), "it has no scope");
}

#[test]
fn hosts_of_several_namespaces_have_scopes() {
    let mut site = site();
    site.put(route("b", "blog", "blog.example.org"));
    assert_eq!(
        site.tabled(),
        ["*.example.org"],
        "nothing of another namespace"
    );
    assert_eq!(site.scoped(), ["blog.example.org"]);
    let wide = ObjectName::new("a", "wide");
    site.apply(Change::delete(ObjectKey::new(Kind::HTTPRoute, wide)));
    assert!(site.scoped().is_empty(), "it is alone");
}
