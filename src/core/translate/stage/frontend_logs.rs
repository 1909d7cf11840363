//! The access log of each frontend: that of its Gateway, or of the shared fleet.

use std::sync::Arc;

use super::fleet::shared_classes;
use crate::key::ParentKey;
use crate::rule::access_logs::{access_log, default_log};
use crate::rule::gateway_exposure::is_shared;
use crate::rule::settings::Settings;
use crate::state::frontend_state::Owner;
use crate::state::parents::Parents;
use crate::state::placed_hosts::namespace_of;
use gatewright_objects::inputs::{GatewayClass, Parameters};
use gatewright_objects::model::{AccessLog, HostOwner, ObjectName, Route};
use gatewright_objects::store::Store;

/// The access log of the frontends of a Gateway, or of the shared fleet.
pub(crate) fn of_frontends(
    place: &ObjectName,
    parents: &Parents,
    store: &Store,
    settings: &Settings,
) -> Option<Arc<AccessLog>> {
    if is_shared(place) {
        return of_shared_fleet(store, settings);
    }
    let parent = parents.get(&ParentKey::Gateway(place.clone()))?;
    parent.placement.exposure.access_log.clone()
}

/// The access log of the shared fleet, whose ports Gateways of several classes may have: that of
/// the first class of the fleet with such parameters. No Gateway has a say in it.
fn of_shared_fleet(store: &Store, settings: &Settings) -> Option<Arc<AccessLog>> {
    shared_classes(store, settings)
        .into_iter()
        .find_map(|(class, parameters)| of_class(class, &parameters, settings))
        .unwrap_or_else(|| default_log(settings))
}

/// The access log that the parameters of a class ask for; `None` if they ask for nothing that the
/// Envoys have, `Some(None)` for no log.
pub(crate) fn of_class(
    class: &GatewayClass,
    parameters: &Parameters,
    settings: &Settings,
) -> Option<Option<Arc<AccessLog>>> {
    let namespace = class.parameters.as_ref()?.namespace.as_ref()?;
    let asked = parameters.access_log.as_ref()?;
    access_log(asked, namespace, &settings.envoy_logs).ok()
}

/// The owner of a virtual host, as access logs name it.
pub(crate) fn host_owner(owner: &Owner, routes: &[Route], parents: &Parents) -> Option<HostOwner> {
    let parent = parents.get(&owner.listener.parent)?;
    let own = &owner.listener.parent.name().namespace;
    let mut namespaces = routes
        .iter()
        .map(|route| namespace_of(route).unwrap_or(own));
    let first = namespaces.next().unwrap_or(own);
    let namespace = if namespaces.all(|other| other == first) {
        Arc::from(first)
    } else {
        own.clone()
    };
    let listener = &owner.listener.name;
    let listener = match &owner.listener.parent {
        ParentKey::Gateway(_) => listener.clone(),
        ParentKey::ListenerSet(set) => format!("{}/{listener}", set.name).into(),
    };
    Some(HostOwner {
        namespace,
        gateway: parent.placement.gateway.clone(),
        listener,
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::rule::ownership::shared_frontend;
    use crate::{Change, Engine, StatusBody};
    use gatewright_objects::inputs::{Kind, Object, ObjectKey};
    use gatewright_objects::model::{Condition, ConditionType, LoggedRequests, TransportPort};

    fn put(value: Value) -> Change {
        Change::put(Object::parse(value).expect("an object"))
    }

    fn class(name: &str, parameters: &str, created: &str) -> Change {
        put(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"controllerName": "c", "parametersRef": {"group": "gatewright.io",
                "kind": "GatewayParameters", "namespace": "infra", "name": parameters}}}),
        )
    }

    fn parameters(namespace: &str, name: &str, spec: &Value) -> Change {
        put(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": namespace, "name": name}, "spec": spec}),
        )
    }

    fn gateway(class: &str, parameters: Option<&str>) -> Change {
        let reference = parameters.map(|name| {
            json!({"parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters", "name": name}})
        });
        let listener = json!({"name": "http", "protocol": "HTTP", "port": 80});
        put(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": "a"},
            "spec": {"gatewayClassName": class, "infrastructure": reference, "listeners": [listener]}}),
        )
    }

    fn engine() -> Engine {
        Engine::new(Settings::new("c", vec![[127, 0, 0, 1].into()]))
    }

    fn apply(engine: &mut Engine, changes: Vec<Change>) {
        engine.apply(changes, SystemTime::UNIX_EPOCH);
    }

    /// The log of the shared port 80.
    fn shared_log(engine: &Engine) -> Option<LoggedRequests> {
        let id = shared_frontend(TransportPort::tcp(80));
        let frontend = engine.frontends().get(&id).expect("it is served");
        frontend.access_log().map(|log| log.requests)
    }

    fn accepted(engine: &Engine) -> Condition {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge"));
        let Some(StatusBody::Gateway(status)) = engine.status(&key).map(|status| status.body)
        else {
            panic!("a Gateway has a status")
        };
        let found = status
            .conditions
            .iter()
            .find(|condition| condition.kind == ConditionType::Accepted);
        found.expect("it has one").clone()
    }

    #[test]
    fn the_oldest_class_of_the_shared_fleet_decides_about_its_ports() {
        let mut engine = engine();
        let off = json!({"fleet": "Shared", "accessLog": {"mode": "Off"}});
        let all = json!({"fleet": "Shared", "accessLog": {"mode": "All"}});
        apply(
            &mut engine,
            vec![
                parameters("infra", "off", &off),
                parameters("infra", "silent", &json!({"fleet": "Shared"})),
                class("young", "off", "2026-02-01T00:00:00Z"),
                class("silent", "silent", "2025-01-01T00:00:00Z"),
                gateway("young", None),
            ],
        );
        assert_eq!(shared_log(&engine), None, "it is off");
        apply(
            &mut engine,
            vec![
                parameters("infra", "all", &all),
                class("old", "all", "2026-01-01T00:00:00Z"),
            ],
        );
        assert_eq!(
            shared_log(&engine),
            Some(LoggedRequests::All { percent: 100 }),
            "of the older class, which has no Gateway"
        );
        apply(
            &mut engine,
            vec![parameters(
                "infra",
                "all",
                &json!({"fleet": "Dedicated", "accessLog": {"mode": "All"}}),
            )],
        );
        assert_eq!(shared_log(&engine), None, "that class left the fleet");
        apply(
            &mut engine,
            vec![parameters("infra", "off", &json!({"fleet": "Shared"}))],
        );
        assert_eq!(
            shared_log(&engine),
            Some(LoggedRequests::Errors),
            "no class says anything"
        );
    }

    #[test]
    fn a_gateway_of_the_shared_fleet_has_no_log_of_its_own() {
        let mut engine = engine();
        apply(
            &mut engine,
            vec![
                parameters("infra", "shared", &json!({"fleet": "Shared"})),
                class("g", "shared", "2026-01-01T00:00:00Z"),
                parameters("a", "own", &json!({"accessLog": {"mode": "Off"}})),
                gateway("g", Some("own")),
            ],
        );
        let found = accepted(&engine);
        assert!(
            found
                .message
                .contains("spec.accessLog: the ports of the shared fleet have the log"),
            "{}",
            found.message
        );
    }
}
