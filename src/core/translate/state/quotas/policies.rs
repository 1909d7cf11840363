//! Policies: how many of each kind a namespace may have, and what those of traces take.

use std::sync::Arc;

use super::super::dirty::Dirty;
use super::super::parent::Parent;
use super::super::policies::Policies;
use super::super::policies::judged::Effect;
use super::{Quotas, one_too_many};
use crate::rule::gateway_exposure::Fleet;
use gatewright_objects::cost::{self, Bytes};
use gatewright_objects::inputs::{Kind, ObjectKey};
use gatewright_objects::limits::{NamespaceLimits, ObjectLimits};
use gatewright_objects::model::Reason;
use gatewright_objects::quota::Member;
use gatewright_objects::store::Store;

/// The kind with whose policies those of a kind are counted.
fn counted_as(kind: Kind) -> Kind {
    match kind {
        Kind::XBackend => Kind::BackendTLSPolicy,
        kind => kind,
    }
}

impl Quotas {
    /// Counts a policy that was put or deleted, and marks those whose verdict changes.
    pub(super) fn note_policy(&mut self, key: &ObjectKey, store: &Store, dirty: &mut Dirty) {
        let policy = store.policy(key);
        let namespace = &key.name.namespace;
        let checking = policy.filter(|policy| policy.checks_health());
        let checking = checking.map(|policy| Member {
            group: namespace.clone(),
            created: policy.meta.created,
            weight: policy.targets.len() as u64,
        });
        dirty.policies.extend(self.health_checks.set(key, checking));
        let member = policy.map(|policy| {
            let group = (namespace.clone(), counted_as(key.kind));
            Member::one(group, policy.meta.created)
        });
        dirty.policies.extend(self.policies.set(key, member));
    }

    /// Sets how many policies a namespace may have, and marks them: messages name what is allowed.
    pub(super) fn allow_policies(
        &mut self,
        namespace: &Arc<str>,
        limits: &NamespaceLimits,
        dirty: &mut Dirty,
    ) {
        self.health_checks.allow(namespace, limits.health_checks);
        for kind in Kind::ALL.iter().filter(|kind| kind.is_policy()) {
            let group = (namespace.clone(), *kind);
            self.policies.allow(&group, limits.policies);
            dirty
                .policies
                .extend(self.policies.of_group(&group).cloned());
        }
    }

    /// The limits of each object.
    pub(crate) fn of_objects(&self) -> &ObjectLimits {
        &self.limits.object
    }

    /// Why a policy is one too many.
    pub(crate) fn policy_beyond(&self, key: &ObjectKey) -> Option<(Reason, String)> {
        let namespace = &key.name.namespace;
        let limits = self.limits_of(namespace);
        if !self.policies.has(key) {
            let what = match key.kind {
                Kind::XTelemetryPolicy => "XTelemetryPolicies",
                _ => "policies",
            };
            let limit = format!("policies {}", limits.policies);
            return Some(one_too_many(what, namespace, &limit));
        }
        if self.health_checks.has(key) {
            return None;
        }
        if limits.health_checks == 0 {
            let text = format!(
                "healthCheck.active is not open to namespace {namespace}: limits.namespace.healthChecks is 0"
            );
            return Some((Reason::LimitReached, text));
        }
        let limit = format!("healthChecks {}", limits.health_checks);
        Some(one_too_many(
            "targets with healthCheck.active",
            namespace,
            &limit,
        ))
    }
}

impl Policies {
    /// What tracing and the collectors of access logs add to each port and filter chain of a
    /// Gateway or ListenerSet. They are of the Gateway's owner, so that a ListenerSet of another
    /// namespace never pays for them.
    pub(super) fn observed(&self, parent: Option<&Parent>) -> Bytes {
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
        let traced = match self.tracing(gateway).map(|judged| &judged.effect) {
            Some(Effect::Trace { cost, .. }) => *cost,
            _ => Bytes::default(),
        };
        cost::LOG_COLLECTOR * collectors + traced
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
