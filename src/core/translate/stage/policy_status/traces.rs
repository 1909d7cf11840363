//! Statuses and traces of XTelemetryPolicies.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::rule::ownership::shared_frontend;
use crate::{Change, Engine, Settings};
use gatewright_objects::channel::Channel;
use gatewright_objects::inputs::{Kind, Object, ObjectKey};
use gatewright_objects::model::{
    ConditionType, FrontendId, ObjectName, Reason, Status, TransportPort,
};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

fn put(value: Value) -> Change {
    Change::put(Object::parse(value).expect("an object"))
}

fn policy(name: &str, created: &str, service: &str) -> Value {
    json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XTelemetryPolicy",
        "metadata": {"name": name, "namespace": "a", "creationTimestamp": created},
        "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}],
            "tracing": {"mode": "Enabled", "provider": {"backendRef": {"name": service, "port": 4317}}}}})
}

fn service(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": [{"port": 4317}]}})
}

fn gateway(namespace: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": namespace},
        "spec": {"gatewayClassName": "g", "listeners": [{"name": "l", "protocol": "HTTP", "port": 80}]}})
}

struct Site(Engine);

impl Site {
    fn with(channel: Channel, objects: Vec<Value>) -> Self {
        let settings = Settings {
            channel,
            ..Settings::new("c", vec![[127, 0, 0, 1].into()])
        };
        let mut site = Self(Engine::new(settings));
        site.put(
            json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g"},
            "spec": {"controllerName": "c"}}),
        );
        objects.into_iter().for_each(|object| site.put(object));
        site
    }

    fn put(&mut self, object: Value) {
        self.apply(put(object));
    }

    fn apply(&mut self, change: Change) {
        self.0.apply(vec![change], SystemTime::UNIX_EPOCH);
    }

    /// The collector of the port of Gateway `edge` of a namespace.
    fn traced(&self, namespace: &str) -> Option<String> {
        let id = FrontendId::tcp(ObjectName::new(namespace, "edge"), 80);
        let frontend = self.0.frontends().get(&id)?;
        Some(frontend.tracing()?.collector.to_string())
    }

    /// Whether a condition of a policy holds, and its reason.
    fn told(&self, policy: &str, kind: ConditionType) -> Option<(Status, Reason)> {
        let key = ObjectKey::new(Kind::XTelemetryPolicy, ObjectName::new("a", policy));
        let status = self.0.status(&key)?;
        let found = status
            .conditions()
            .find(|condition| condition.kind == kind)?;
        Some((found.status, found.reason))
    }
}

#[test]
fn the_oldest_policy_of_a_gateway_counts() {
    let mut site = Site::with(
        Channel::Experimental,
        vec![
            gateway("a"),
            gateway("b"),
            service("a", "one"),
            service("a", "two"),
            policy("young", "2026-02-01T00:00:00Z", "two"),
        ],
    );
    assert_eq!(site.traced("a").as_deref(), Some("a/two:4317/otlp"));
    assert_eq!(site.traced("b"), None, "a stranger's Gateway of that name");
    site.put(policy("old", "2026-01-01T00:00:00Z", "one"));
    assert_eq!(site.traced("a").as_deref(), Some("a/one:4317/otlp"));
    assert_eq!(
        site.told("young", ConditionType::Accepted),
        Some((Status::False, Reason::Conflicted))
    );
    assert_eq!(
        site.told("old", ConditionType::Accepted),
        Some((Status::True, Reason::Accepted))
    );
    let key = ObjectKey::new(Kind::XTelemetryPolicy, ObjectName::new("a", "old"));
    site.apply(Change::delete(key));
    assert_eq!(site.traced("a").as_deref(), Some("a/two:4317/otlp"));
    assert_eq!(
        site.told("young", ConditionType::Accepted),
        Some((Status::True, Reason::Accepted))
    );
}

#[test]
fn a_reference_is_resolved_when_its_service_comes() {
    let mut site = Site::with(
        Channel::Experimental,
        vec![policy("p", "2026-01-01T00:00:00Z", "c")],
    );
    assert_eq!(
        site.told("p", ConditionType::Accepted),
        Some((Status::False, Reason::TargetNotFound)),
        "there is no Gateway"
    );
    site.put(gateway("a"));
    assert_eq!(
        site.told("p", ConditionType::Accepted),
        Some((Status::True, Reason::Accepted))
    );
    assert_eq!(
        site.told("p", ConditionType::ResolvedRefs),
        Some((Status::False, Reason::BackendNotFound))
    );
    assert_eq!(site.traced("a"), None, "there is no collector");
    site.put(service("a", "c"));
    assert_eq!(
        site.told("p", ConditionType::ResolvedRefs),
        Some((Status::True, Reason::ResolvedRefs))
    );
    assert!(site.traced("a").is_some(), "spans go to it");
}

#[test]
fn a_collector_of_another_namespace_needs_a_grant() {
    let mut across = policy("p", "2026-01-01T00:00:00Z", "c");
    across["spec"]["tracing"]["provider"]["backendRef"]["namespace"] = json!("monitoring");
    let mut site = Site::with(
        Channel::Experimental,
        vec![gateway("a"), service("monitoring", "c"), across],
    );
    assert_eq!(
        site.told("p", ConditionType::ResolvedRefs),
        Some((Status::False, Reason::RefNotPermitted))
    );
    assert_eq!(site.traced("a"), None, "nothing is sent there");
    site.put(
        json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
        "metadata": {"name": "spans", "namespace": "monitoring"}, "spec": {
            "from": [{"group": "gateway.networking.x-k8s.io", "kind": "XTelemetryPolicy", "namespace": "a"}],
            "to": [{"group": "", "kind": "Service"}]}}),
    );
    assert_eq!(
        site.traced("a").as_deref(),
        Some("monitoring/c:4317/otlp"),
        "it is permitted"
    );
}

#[test]
fn a_policy_has_no_effect_on_the_standard_channel_and_on_the_shared_fleet() {
    let objects = vec![
        gateway("a"),
        service("a", "c"),
        policy("p", "2026-01-01T00:00:00Z", "c"),
    ];
    let site = Site::with(Channel::Standard, objects.clone());
    assert_eq!(site.traced("a"), None);
    assert_eq!(
        site.told("p", ConditionType::Accepted),
        Some((Status::False, Reason::Invalid)),
        "on the standard channel"
    );
    let mut site = Site::with(Channel::Experimental, objects);
    assert!(site.traced("a").is_some(), "its ports are its own");
    site.put(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"name": "shared", "namespace": "infra"}, "spec": {"fleet": "Shared"}}),
    );
    site.put(
        json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g"},
        "spec": {"controllerName": "c", "parametersRef": {"group": "gatewright.io",
            "kind": "GatewayParameters", "namespace": "infra", "name": "shared"}}}),
    );
    assert_eq!(
        site.told("p", ConditionType::Accepted),
        Some((Status::False, Reason::Invalid)),
        "on the shared fleet"
    );
    let shared = shared_frontend(TransportPort::tcp(80));
    let frontend = site.0.frontends().get(&shared).expect("it is served");
    assert_eq!(frontend.tracing(), None, "a port of everybody");
}
