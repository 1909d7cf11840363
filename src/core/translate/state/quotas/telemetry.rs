//! XTelemetryPolicies: how many a namespace may have, and what the ports of their Gateways take.

use std::sync::Arc;

use super::super::dirty::Dirty;
use super::super::parent::Parent;
use super::super::telemetry_marks::touch_traced;
use super::{Quotas, one_too_many};
use crate::rule::gateway_exposure::Fleet;
use crate::rule::settings::Settings;
use gatewright_objects::channel::Channel;
use gatewright_objects::cost::{self, Bytes};
use gatewright_objects::inputs::{TelemetryPolicy, TracingRules};
use gatewright_objects::model::{ObjectName, Reason};
use gatewright_objects::quota::Member;
use gatewright_objects::store::Store;

impl Quotas {
    /// Counts a policy that was put or deleted, and marks the Gateways of others whose verdict
    /// changes.
    pub(super) fn note_telemetry(&mut self, name: &ObjectName, store: &Store, dirty: &mut Dirty) {
        let policy = store.telemetry_policy(name);
        let member = policy.map(|policy| Member::one(name.namespace.clone(), policy.meta.created));
        let moved = self.telemetry_policies.set(name, member);
        touch_all(&moved, store, dirty);
    }

    /// Sets how many policies a namespace may have.
    pub(super) fn allow_telemetry(
        &mut self,
        namespace: &Arc<str>,
        most: u64,
        store: &Store,
        dirty: &mut Dirty,
    ) {
        self.telemetry_policies.allow(namespace, most);
        // Messages name what is allowed.
        let all: Vec<ObjectName> = self
            .telemetry_policies
            .of_group(namespace)
            .cloned()
            .collect();
        touch_all(&all, store, dirty);
    }

    /// Why a policy is one too many.
    pub(crate) fn telemetry_beyond(&self, name: &ObjectName) -> Option<(Reason, String)> {
        if self.telemetry_policies.has(name) {
            return None;
        }
        let namespace = &name.namespace;
        let limit = format!("policies {}", self.limits_of(namespace).policies);
        Some(one_too_many("XTelemetryPolicies", namespace, &limit))
    }

    /// The policies of a Gateway that are within the quota, the oldest first. Their order is that
    /// of the quota, so that none follows the first one beyond it.
    pub(crate) fn telemetry_within<'a>(
        &self,
        gateway: &ObjectName,
        store: &'a Store,
    ) -> impl Iterator<Item = &'a Arc<TelemetryPolicy>> {
        store
            .telemetry_policies(gateway)
            .take_while(|policy| self.telemetry_policies.has(&policy.meta.name))
    }

    /// What tracing and the collectors of access logs add to each port and filter chain of a
    /// Gateway or ListenerSet. They are of the Gateway's owner, so that a ListenerSet of another
    /// namespace never pays for them.
    pub(super) fn observed(
        &self,
        parent: Option<&Parent>,
        store: &Store,
        settings: &Settings,
    ) -> Bytes {
        let Some(parent) = parent else {
            return Bytes::default();
        };
        let gateway = &parent.placement.gateway;
        let exposure = &parent.placement.exposure;
        if exposure.fleet == Fleet::Shared || parent.key.name().namespace != gateway.namespace {
            return Bytes::default();
        }
        let log = exposure.access_log.iter();
        let collectors = log.flat_map(|log| log.collectors()).count() as u64;
        let traced = self.traced(gateway, store, settings);
        cost::LOG_COLLECTOR * collectors + traced
    }

    fn traced(&self, gateway: &ObjectName, store: &Store, settings: &Settings) -> Bytes {
        if settings.channel == Channel::Standard {
            return Bytes::default();
        }
        let rules = self
            .telemetry_within(gateway, store)
            .find_map(|policy| policy.tracing.as_ref().ok());
        match rules {
            Some(TracingRules::On(parameters)) => cost::traces(parameters),
            Some(TracingRules::Off) | None => Bytes::default(),
        }
    }
}

fn touch_all(policies: &[ObjectName], store: &Store, dirty: &mut Dirty) {
    let policies = policies
        .iter()
        .filter_map(|name| store.telemetry_policy(name));
    for gateway in policies.flat_map(|policy| &policy.gateways) {
        touch_traced(gateway, store, dirty);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use crate::{Change, Engine, Settings};
    use gatewright_objects::channel::Channel;
    use gatewright_objects::inputs::{Kind, Object, ObjectKey};
    use gatewright_objects::limits::{Limits, NamespaceLimits};
    use gatewright_objects::model::{ConditionType, FrontendId, ObjectName, Reason};

    const GATEWAY: &str = "gateway.networking.k8s.io/v1";

    fn apply(engine: &mut Engine, changes: Vec<Change>) {
        engine.apply(changes, SystemTime::UNIX_EPOCH);
    }

    fn put(object: Value) -> Change {
        Change::put(Object::parse(object).expect("an object"))
    }

    fn gateway(name: &str, port: u16) -> Change {
        put(
            json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": "a"},
            "spec": {"gatewayClassName": "g", "listeners": [{"name": "l", "protocol": "HTTP", "port": port}]}}),
        )
    }

    /// A policy for the Gateway of its name, created in this year, with a header of so many bytes.
    fn policy(name: &str, year: u16, bytes: usize) -> Change {
        let headers = json!([{"name": "authorization", "value": "v".repeat(bytes)}]);
        let provider = json!({"backendRef": {"name": "c", "port": 4317}, "headers": headers});
        put(
            json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XTelemetryPolicy",
            "metadata": {"name": name, "namespace": "a", "creationTimestamp": format!("{year}-01-01T00:00:00Z")},
            "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name}],
                "tracing": {"mode": "Enabled", "provider": provider}}}),
        )
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(Kind::XTelemetryPolicy, ObjectName::new("a", name))
    }

    /// An engine whose namespaces may have so many policies, with Gateways `one` and `two`.
    fn engine(policies: u64) -> Engine {
        let mut limits = Limits::default();
        limits.namespace = NamespaceLimits {
            policies,
            ..limits.namespace
        };
        let mut engine = Engine::new(Settings {
            channel: Channel::Experimental,
            limits,
            ..Settings::new("c", vec![[127, 0, 0, 1].into()])
        });
        let class = json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g"},
            "spec": {"controllerName": "c"}});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "c", "namespace": "a"},
            "spec": {"ports": [{"port": 4317}]}});
        let objects = [
            put(class),
            put(service),
            gateway("one", 80),
            gateway("two", 81),
        ];
        apply(&mut engine, objects.into());
        engine
    }

    /// True if the port of a Gateway has traces.
    fn is_traced(engine: &Engine, gateway: &str, port: u16) -> bool {
        let id = FrontendId::tcp(ObjectName::new("a", gateway), port);
        let frontend = engine.frontends().get(&id);
        frontend.is_some_and(|frontend| frontend.tracing().is_some())
    }

    fn reason(engine: &Engine, policy: &str) -> Option<Reason> {
        let status = engine.status(&key(policy))?;
        let mut conditions = status.conditions();
        let accepted = conditions.find(|it| it.kind == ConditionType::Accepted);
        accepted.map(|it| it.reason)
    }

    #[test]
    fn the_oldest_policies_of_a_namespace_count() {
        let mut engine = engine(1);
        apply(&mut engine, vec![policy("two", 2026, 1)]);
        assert!(is_traced(&engine, "two", 81), "the only one");
        apply(&mut engine, vec![policy("one", 2025, 1)]);
        assert!(is_traced(&engine, "one", 80), "the older one");
        assert!(!is_traced(&engine, "two", 81), "one too many");
        assert_eq!(reason(&engine, "one"), Some(Reason::Accepted));
        assert_eq!(reason(&engine, "two"), Some(Reason::LimitReached));
        apply(&mut engine, vec![Change::delete(key("one"))]);
        assert!(!is_traced(&engine, "one", 80), "it is gone");
        assert!(is_traced(&engine, "two", 81), "there is room");
        assert_eq!(reason(&engine, "two"), Some(Reason::Accepted));
    }

    #[test]
    fn a_policy_counts_for_the_memory_of_its_namespace() {
        fn used(engine: &Engine) -> u64 {
            let uses = engine.quota_uses();
            let of = uses.iter().find(|of| &*of.namespace == "a");
            of.map_or(0, |of| of.used.bytes.envoy)
        }
        let mut engine = engine(2);
        let before = used(&engine);
        apply(&mut engine, vec![policy("one", 2025, 1)]);
        let small = used(&engine);
        assert!(small > before, "{before} {small}");
        apply(&mut engine, vec![policy("one", 2025, 4000)]);
        let large = used(&engine);
        assert!(large > small + 4000, "{small} {large}");
        apply(&mut engine, vec![Change::delete(key("one"))]);
        assert_eq!(used(&engine), before, "nothing is left");
    }
}
