//! Collectors of access logs: whether lines reach them, by what objects say. A collector that is
//! not reached loses lines; no request waits for it, and no Gateway is refused because of it.

use super::dirty::Dirty;
use super::endpoints::ServiceEndpoints;
use super::policies::Policies;
use crate::key::{ParentKey, Verdict};
use crate::rule::backend_reference::Referrer;
use gatewright_objects::inputs::{Kind, LocalRef, ObjectKey};
use gatewright_objects::model::{
    AccessLog, BackendId, BackendTransport, Condition, ConditionType, ObjectName, Reason, Status,
    Transport,
};
use gatewright_objects::store::Store;

/// The states that show whether a collector is reached.
#[derive(Clone, Copy)]
pub(crate) struct Collectors<'a> {
    pub(crate) store: &'a Store,
    pub(crate) policies: &'a Policies,
    pub(crate) service_endpoints: &'a ServiceEndpoints,
}

impl Collectors<'_> {
    /// The condition of a Gateway or class whose access log has a collector that gets no lines.
    pub(crate) fn condition(self, log: Option<&AccessLog>) -> Option<Condition> {
        let mut collectors = log.into_iter().flat_map(AccessLog::collectors);
        let (reason, text) = collectors.find_map(|collector| self.verdict(collector).err())?;
        Some(Condition {
            kind: ConditionType::AccessLogWarning,
            status: Status::True,
            reason,
            message: format!("{text}; lines of the access log are lost"),
        })
    }

    /// Ok if lines reach a collector, as far as objects say.
    fn verdict(self, collector: &BackendId) -> Verdict {
        let port = &collector.port;
        let name = &port.service;
        let referrer = Referrer {
            store: self.store,
            kind: Kind::GatewayParameters,
            name,
            transport: Transport::Tcp,
        };
        let reference = LocalRef {
            group: String::new(),
            kind: "Service".to_owned(),
            name: name.clone(),
        };
        referrer.look_up(
            &reference,
            Some(port.port),
            "spec.accessLog.sinks: openTelemetry",
        )?;
        self.reached(collector)
    }

    /// Ok if what is sent to a Service port that is there reaches endpoints, as far as objects say.
    pub(crate) fn reached(self, collector: &BackendId) -> Verdict {
        let port = &collector.port;
        let name = &port.service;
        if self.policies.transport(collector) == BackendTransport::Refused {
            let text = format!(
                "the BackendTLSPolicy of Service {name} cannot be carried out: see its status"
            );
            return Err((Reason::NoValidCACertificate, text));
        }
        self.service_endpoints.verdict([port.clone()])?;
        if self.service_endpoints.is_empty(port) {
            let text = format!("Service {name} port {} has no ready endpoint", port.port);
            return Err((Reason::NoEndpoints, text));
        }
        Ok(())
    }
}

/// The classes and Gateways whose access logs go to a Service.
fn users(service: &ObjectName, store: &Store) -> Vec<ObjectKey> {
    let indexes = store.indexes();
    let direct = indexes
        .parameters_by_collector(service)
        .flat_map(|parameters| indexes.users_of_parameters(parameters));
    let mut all = Vec::new();
    for key in direct {
        all.push(key.clone());
        if key.kind == Kind::GatewayClass {
            let gateways = indexes.gateways_by_class(&key.name.name).cloned();
            all.extend(gateways.map(|name| ParentKey::Gateway(name).object()));
        }
    }
    all
}

/// Marks what depends on a Service as a collector of access logs.
pub(crate) fn touch_collector(service: &ObjectName, store: &Store, dirty: &mut Dirty) {
    let logged = users(service, store);
    dirty.uses.extend(logged.iter().cloned());
    dirty.statuses.extend(logged);
}

/// Marks the statuses that say whether a Service gets lines of access logs, or spans.
pub(crate) fn touch_users(service: &ObjectName, store: &Store, dirty: &mut Dirty) {
    dirty.statuses.extend(users(service, store));
    let policies = store.indexes().policies_by_reference(service).cloned();
    dirty
        .statuses
        .extend(policies.filter(|key| key.kind == Kind::XTelemetryPolicy));
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::{Change, Engine, Resource, ResourceKey, Settings, StatusBody};
    use gatewright_objects::inputs::Object;
    use gatewright_objects::model::{AppProtocol, ServicePort};

    fn put(value: Value) -> Change {
        Change::put(Object::parse(value).expect("an object"))
    }

    fn service(port: u16) -> Change {
        put(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "collector", "namespace": "infra"},
            "spec": {"ports": [{"port": port}]}}),
        )
    }

    fn slice(ready: bool) -> Change {
        let endpoints = json!([{"addresses": ["192.0.2.1"], "conditions": {"ready": ready}}]);
        put(
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "collector-1", "namespace": "infra", "labels": {"kubernetes.io/service-name": "collector"}},
            "endpoints": endpoints, "ports": [{"port": 4317}]}),
        )
    }

    fn cluster(service: &str) -> ResourceKey {
        let at = ServicePort {
            service: ObjectName::new("infra", service),
            port: 4317,
            transport: Transport::Tcp,
        };
        ResourceKey::Backend(BackendId::new(at, AppProtocol::Otlp))
    }

    fn parameters(service: &str) -> Change {
        let sink =
            json!({"type": "OpenTelemetry", "openTelemetry": {"service": service, "port": 4317}});
        put(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "infra", "name": "logged"}, "spec": {"accessLog": {"sinks": [sink]}}}),
        )
    }

    fn gateway_of_class() -> [Change; 2] {
        [
            put(
                json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "g"},
                "spec": {"controllerName": "c", "parametersRef": {"group": "gatewright.io",
                    "kind": "GatewayParameters", "namespace": "infra", "name": "logged"}}}),
            ),
            put(
                json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": {"name": "edge", "namespace": "a"}, "spec": {"gatewayClassName": "g",
                    "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}),
            ),
        ]
    }

    fn site() -> Engine {
        let mut engine = Engine::new(Settings::new("c", vec![[127, 0, 0, 1].into()]));
        let mut objects = vec![parameters("collector")];
        objects.extend(gateway_of_class());
        engine.apply(objects, SystemTime::UNIX_EPOCH);
        engine
    }

    /// The reason why lines do not arrive, by the status of an object.
    fn told(engine: &Engine, kind: Kind, name: ObjectName) -> Option<Reason> {
        let status = engine.status(&ObjectKey::new(kind, name))?;
        let conditions = match status.body {
            StatusBody::Gateway(status) => status.conditions,
            StatusBody::Class(status) => status.conditions,
            other => panic!("{other:?}"),
        };
        let found = conditions
            .iter()
            .find(|condition| condition.kind == ConditionType::AccessLogWarning)?;
        Some(found.reason)
    }

    fn of_gateway(engine: &Engine) -> Option<Reason> {
        told(engine, Kind::Gateway, ObjectName::new("a", "edge"))
    }

    fn of_class(engine: &Engine) -> Option<Reason> {
        told(engine, Kind::GatewayClass, ObjectName::new("", "g"))
    }

    fn apply(engine: &mut Engine, change: Change) {
        engine.apply(vec![change], SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn a_status_says_that_lines_are_lost_and_why() {
        let mut engine = site();
        assert_eq!(
            of_class(&engine),
            Some(Reason::BackendNotFound),
            "of the class"
        );
        assert_eq!(
            of_gateway(&engine),
            Some(Reason::BackendNotFound),
            "there is no Service"
        );
        apply(&mut engine, service(4318));
        assert_eq!(
            of_gateway(&engine),
            Some(Reason::BackendNotFound),
            "it has another port"
        );
        apply(&mut engine, service(4317));
        assert_eq!(
            of_gateway(&engine),
            Some(Reason::NoEndpoints),
            "nobody is there"
        );
        apply(&mut engine, slice(true));
        assert_eq!(of_gateway(&engine), None, "it is reached");
        assert_eq!(of_class(&engine), None, "of the class as well");
        apply(&mut engine, slice(false));
        assert_eq!(
            of_gateway(&engine),
            Some(Reason::NoEndpoints),
            "it went away"
        );
    }

    #[test]
    fn a_bad_policy_of_the_collector_is_told() {
        let mut engine = site();
        apply(&mut engine, service(4317));
        apply(&mut engine, slice(true));
        let policy = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
            "metadata": {"name": "p", "namespace": "infra"}, "spec": {
                "targetRefs": [{"group": "", "kind": "Service", "name": "collector"}],
                "validation": {"hostname": "c.org", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}}});
        apply(&mut engine, put(policy));
        assert_eq!(
            of_gateway(&engine),
            Some(Reason::NoValidCACertificate),
            "its certificate cannot be verified"
        );
    }

    #[test]
    fn the_collector_has_a_cluster_as_long_as_a_port_logs_to_it() {
        let mut engine = Engine::new(Settings::new("c", vec![[127, 0, 0, 1].into()]));
        let mut objects = vec![parameters("one")];
        objects.extend(gateway_of_class());
        let made = engine.apply(objects, SystemTime::UNIX_EPOCH);
        assert!(
            matches!(
                made.resources.get(&cluster("one")),
                Some(Some(Resource::Cluster(_)))
            ),
            "there is a cluster"
        );
        let made = engine.apply(vec![parameters("two")], SystemTime::UNIX_EPOCH);
        assert!(
            matches!(made.resources.get(&cluster("one")), Some(None)),
            "it goes with the last log"
        );
        assert!(
            matches!(made.resources.get(&cluster("two")), Some(Some(_))),
            "the other one comes"
        );
    }
}
