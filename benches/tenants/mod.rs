//! Makes any number of tenants with routes.

use gatewright_core::inputs::Object;
use gatewright_core::tenancy::{self, Claimant};
use serde_json::{Value, json};

fn namespace(name: &str, host: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {
        "namespace.cozystack.io/gateway": name, "namespace.cozystack.io/host": host}}})
}

fn tenant(namespace: &str, apex: &str, mode: &str) -> Value {
    let mut spec = json!({"apex": apex, "certMode": mode});
    if mode == "existingSecret" {
        spec["wildcardSecretRef"] = json!({"name": "wildcard"});
    }
    json!({"apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway",
        "metadata": {"namespace": namespace, "name": "cozystack", "uid": namespace}, "spec": spec})
}

pub(crate) fn route(n: usize) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "tenant-a", "name": format!("r{n}")},
        "spec": {"parentRefs": [{"name": "cozystack"}], "hostnames": [format!("h{n}.a.example.org")],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

fn class() -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "cilium"},
        "spec": {"controllerName": "ours"}})
}

pub(crate) fn all(hosts: usize, tenants: usize, mode: &str) -> Vec<Object> {
    let mut values = vec![
        class(),
        namespace("tenant-a", "a.example.org"),
        tenant("tenant-a", "a.example.org", mode),
    ];
    for n in 1..tenants {
        let name = format!("other-{n}");
        let apex = format!("o{n}.example.org");
        values.extend([namespace(&name, &apex), tenant(&name, &apex, mode)]);
    }
    values.extend((0..hosts).map(route));
    values.into_iter().map(object).collect()
}

pub(crate) fn object(value: Value) -> Object {
    Object::parse(value).expect("a valid object")
}

/// The changes of the first stage alone.
pub(crate) fn changes(objects: Vec<Object>) -> Vec<tenancy::Change> {
    fn change(object: Object) -> tenancy::Change {
        match object {
            Object::GatewayClass(class) => {
                tenancy::Change::Class(class.meta.name.name.clone(), true)
            }
            Object::Namespace(given) => {
                let namespace = tenancy::Namespace {
                    uid: given.uid,
                    labels: given.labels,
                    annotations: given.annotations,
                };
                tenancy::Change::Namespace(given.name, Some(namespace))
            }
            Object::TenantGateway(tenant) => {
                tenancy::Change::TenantGateway(tenant.name.clone(), Some(*tenant))
            }
            Object::Route(route) => {
                let claimant = Claimant::from(&route);
                tenancy::Change::Claimant(claimant.key.clone(), Some(claimant))
            }
            other => unreachable!("none is made: {other:?}"),
        }
    }
    objects.into_iter().map(change).collect()
}
