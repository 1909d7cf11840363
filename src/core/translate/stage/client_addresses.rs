//! Whose word frontends take for the address of a client: a Gateway's parameters say it for ports
//! of its own, and those of classes for ports of the shared fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fleet::shared_classes;
use crate::key::ParentKey;
use crate::rule::gateway_exposure::is_shared;
use crate::rule::settings::Settings;
use crate::state::parents::Parents;
use gatewright_objects::inputs::{ClientAddresses, GatewayClass};
use gatewright_objects::model::{ClientAddress, ObjectName};
use gatewright_objects::store::Store;

/// The client addresses of the frontends of a Gateway, or of the shared fleet.
pub(crate) fn clients_of(
    owner: &ObjectName,
    parents: &Parents,
    store: &Store,
    settings: &Settings,
) -> ClientAddresses {
    if is_shared(owner) {
        let all = of_shared_fleet(store, settings);
        return all
            .into_iter()
            .map(|(port, (_, clients))| (port, clients))
            .collect();
    }
    parents
        .get(&ParentKey::Gateway(owner.clone()))
        .map(|parent| parent.placement.exposure.clients.clone())
        .unwrap_or_default()
}

/// The message, with the fix, for a class whose parameters name a port of the shared fleet about
/// which another class has decided otherwise.
pub(crate) fn overruled(
    class: &GatewayClass,
    store: &Store,
    settings: &Settings,
) -> Option<String> {
    let classes = shared_classes(store, settings);
    let (_, parameters) = classes.into_iter().find(|(found, _)| *found == class)?;
    let all = of_shared_fleet(store, settings);
    parameters.clients?.iter().find_map(|(port, own)| {
        let (other, decided) = all.get(&port)?;
        (decided != own).then(|| {
            format!(
                "spec.clients of its GatewayParameters has no effect on port {port} of the shared fleet: GatewayClass {other} \
                 is older and says otherwise; let both say the same"
            )
        })
    })
}

/// By port, the class that decides, which is the first one, and its decision.
fn of_shared_fleet(store: &Store, settings: &Settings) -> BTreeMap<u16, (Arc<str>, ClientAddress)> {
    let mut all = BTreeMap::new();
    for (class, parameters) in shared_classes(store, settings) {
        for (port, clients) in parameters.clients.iter().flat_map(ClientAddresses::iter) {
            all.entry(port)
                .or_insert_with(|| (class.meta.name.name.clone(), clients.clone()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use crate::{Change, Engine, Settings, StatusBody};
    use gatewright_objects::inputs::{Kind, Object, ObjectKey};
    use gatewright_objects::model::{FrontendId, ObjectName};

    const GATEWAY: &str = "gateway.networking.k8s.io/v1";

    fn put(value: Value) -> Change {
        Change::put(Object::parse(value).expect("an object"))
    }

    fn parameters(namespace: &str, name: &str, spec: Value) -> Value {
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": namespace, "name": name}, "spec": spec})
    }

    fn hops(port: u16, hops: u8) -> Value {
        json!([{"ports": [port], "forwardedFor": {"hops": hops}}])
    }

    fn class(name: &str, created: &str) -> Value {
        json!({"apiVersion": GATEWAY, "kind": "GatewayClass",
            "metadata": {"name": name, "creationTimestamp": created}, "spec": {"controllerName": "c",
                "parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters", "namespace": "infra", "name": name}}})
    }

    fn gateway(name: &str, class: &str, own: Option<&str>) -> Value {
        let mut made = json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": "a"},
            "spec": {"gatewayClassName": class, "listeners": [{"name": "l", "protocol": "HTTP", "port": 80}]}});
        if let Some(own) = own {
            made["spec"]["infrastructure"] = json!({"parametersRef": {"group": "gatewright.io",
                "kind": "GatewayParameters", "name": own}});
        }
        made
    }

    /// The trusted hops at port 80 of a Gateway or of the shared fleet; `None` without that port.
    fn served(engine: &Engine, owner: &ObjectName) -> Option<u8> {
        let id = FrontendId::tcp(owner.clone(), 80);
        let frontend = engine.frontends().get(&id)?;
        Some(frontend.clients().hops)
    }

    fn engine() -> Engine {
        Engine::new(Settings::new("c", vec![[127, 0, 0, 1].into()]))
    }

    /// Status, reason and message of `Accepted`.
    fn accepted(engine: &Engine, kind: Kind, name: &ObjectName) -> String {
        let status = engine.status(&ObjectKey::new(kind, name.clone()));
        let conditions = match status.expect("a status").body {
            StatusBody::Class(status) => status.conditions,
            StatusBody::Gateway(status) => status.conditions,
            other => panic!("{other:?}"),
        };
        let condition = &conditions[0];
        format!("{:?}: {}", condition.reason, condition.message)
    }

    #[test]
    fn a_gateway_says_more_about_its_own_ports_than_its_class() {
        let mut engine = engine();
        let now = SystemTime::UNIX_EPOCH;
        let edge = ObjectName::new("a", "edge");
        engine.apply(
            vec![
                put(class("g", "2026-01-01T00:00:00Z")),
                put(parameters("infra", "g", json!({"clients": hops(80, 1)}))),
                put(gateway("edge", "g", None)),
            ],
            now,
        );
        assert_eq!(served(&engine, &edge), Some(1), "as the class says");
        engine.apply(
            vec![
                put(parameters("a", "own", json!({"clients": hops(80, 2)}))),
                put(gateway("edge", "g", Some("own"))),
            ],
            now,
        );
        assert_eq!(served(&engine, &edge), Some(2), "as it says itself");
        engine.apply(
            vec![put(parameters("a", "own", json!({"clients": []})))],
            now,
        );
        assert_eq!(served(&engine, &edge), Some(0), "nobody");
    }

    #[test]
    fn the_oldest_class_decides_about_a_port_of_the_shared_fleet() {
        let mut engine = engine();
        let now = SystemTime::UNIX_EPOCH;
        fn said(count: u8) -> Value {
            json!({"fleet": "Shared", "clients": hops(80, count)})
        }
        engine.apply(
            vec![
                put(class("old", "2026-01-01T00:00:00Z")),
                put(class("new", "2026-02-01T00:00:00Z")),
                put(parameters("infra", "old", said(1))),
                put(parameters("infra", "new", said(2))),
                put(gateway("edge", "new", None)),
            ],
            now,
        );
        let shared = crate::rule::gateway_exposure::shared();
        assert_eq!(served(&engine, shared), Some(1), "the older class");
        let class = ObjectName::new("", "new");
        let told = accepted(&engine, Kind::GatewayClass, &class);
        assert!(
            told.starts_with("Accepted: ") && told.contains("port 80") && told.contains("old"),
            "{told}"
        );
        engine.apply(
            vec![put(parameters("infra", "old", json!({"fleet": "Shared"})))],
            now,
        );
        assert_eq!(served(&engine, shared), Some(2), "the only one");
        assert_eq!(
            accepted(&engine, Kind::GatewayClass, &class),
            "Accepted: ",
            "it decides itself"
        );
    }

    #[test]
    fn a_gateway_says_nothing_about_ports_that_it_shares() {
        let mut engine = engine();
        engine.apply(
            vec![
                put(class("g", "2026-01-01T00:00:00Z")),
                put(parameters("infra", "g", json!({"fleet": "Shared"}))),
                put(parameters("a", "own", json!({"clients": hops(80, 2)}))),
                put(gateway("edge", "g", Some("own"))),
            ],
            SystemTime::UNIX_EPOCH,
        );
        let told = accepted(&engine, Kind::Gateway, &ObjectName::new("a", "edge"));
        assert!(
            told.starts_with("InvalidParameters: ") && told.contains("spec.clients"),
            "{told}"
        );
        assert_eq!(
            served(&engine, crate::rule::gateway_exposure::shared()),
            None,
            "it is not served"
        );
    }
}
