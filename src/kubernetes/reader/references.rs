//! The objects that an object refers to. Pure.

use crate::secrets::refs;
use gatewright_core::inputs::{Kind, LocalRef, Object, ObjectKey, Route};
use gatewright_core::model::ObjectName;

/// Returns the objects that an object refers to and that decide about it: parents, classes,
/// Services, Secrets and ConfigMaps.
pub(super) fn references(object: &Object) -> Vec<ObjectKey> {
    let own = match object {
        Object::Route(route) => return of_route(route),
        Object::Gateway(gateway) => {
            let class = ObjectName::new("", gateway.class.as_str());
            Some(ObjectKey::new(Kind::GatewayClass, class))
        }
        Object::ListenerSet(set) => set
            .parent
            .clone()
            .map(|gateway| ObjectKey::new(Kind::Gateway, gateway)),
        _ => None,
    };
    let contents = refs::references(object).unwrap_or_default();
    own.into_iter()
        .chain(contents.into_iter().filter_map(content))
        .collect()
}

fn of_route(route: &Route) -> Vec<ObjectKey> {
    let namespace = &route.meta.name.namespace;
    let parents = route
        .parents
        .iter()
        .filter_map(|parent| parent.target(namespace))
        .map(|(kind, name)| ObjectKey::new(kind, name));
    let services = route
        .rules
        .iter()
        .flat_map(|rule| &rule.backends)
        .map(|backend| &backend.target)
        .filter(|target| target.group.is_empty() && target.kind == Kind::Service.as_str())
        .map(|target| ObjectKey::new(Kind::Service, target.name.clone()));
    parents.chain(services).collect()
}

/// A Secret or ConfigMap.
fn content(reference: &LocalRef) -> Option<ObjectKey> {
    let kind = [Kind::Secret, Kind::ConfigMap]
        .into_iter()
        .find(|kind| reference.group.is_empty() && reference.kind == kind.as_str())?;
    Some(ObjectKey::new(kind, reference.name.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn named(object: Value) -> Vec<String> {
        let object = Object::parse(object).expect("an object");
        references(&object)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_route_refers_to_parents_and_services() {
        let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"parentRefs": [{"name": "edge", "namespace": "platform"}],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}, {"name": "db", "namespace": "data", "port": 1}]}]}});
        let expected = [
            "gateway platform/edge",
            "service shop/web",
            "service data/db",
        ];
        assert_eq!(named(route), expected);
    }

    #[test]
    fn a_gateway_refers_to_its_class_and_its_certificates() {
        let listener = json!({"name": "https", "port": 443, "protocol": "HTTPS",
            "tls": {"certificateRefs": [{"name": "cert"}]}});
        let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": "shop"},
            "spec": {"gatewayClassName": "ours", "listeners": [listener]}});
        assert_eq!(named(gateway), ["gatewayclass ours", "secret shop/cert"]);
    }
}
