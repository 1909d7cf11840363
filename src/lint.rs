//! Lint: finds what would be rejected or would lose, without anything running. Pure.
//!
//! In: objects. Out: [`Finding`]s: errors of TenantGateways, hostnames that routes would not get, and references that
//! do not resolve or are not permitted, whichever controller serves the Gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use gatewright_control::publish;
use gatewright_core::inputs::{Object, ObjectKey};
use gatewright_core::model::{Condition, ConditionType, ObjectName, Reason};
use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::tenancy::{self, GATEWAY_LABEL};
use gatewright_core::translate::{Change, RouteKey, Settings};

/// An error of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The object.
    pub object: ObjectKey,
    /// The condition's reason.
    pub reason: String,
    /// The message: the error, and the remedy.
    pub message: String,
}

/// Lints objects as a complete set.
pub fn lint(objects: Vec<Object>, settings: Settings, tenancy: tenancy::Settings, now: SystemTime) -> Vec<Finding> {
    let given: BTreeSet<ObjectKey> = objects.iter().map(Object::key).collect();
    let mut pipeline = Pipeline::new(settings, tenancy, Written::Here);
    let outcome = pipeline.apply(objects.into_iter().map(Change::put).collect(), now);
    let mut found: BTreeMap<(ObjectKey, String), BTreeSet<String>> = BTreeMap::new();
    let mut add = |object: &ObjectKey, reason: &str, message: &str| {
        // The author cannot change derived objects.
        if given.contains(object) {
            found.entry((object.clone(), reason.to_owned())).or_default().insert(message.to_owned());
        }
    };
    let engine = pipeline.engine();
    for (key, status) in engine.statuses() {
        for condition in status.conditions().filter(|condition| is_wrong(condition)) {
            add(key, condition.reason.as_str(), &condition.message);
        }
    }
    for (key, (reason, message)) in engine.unresolved() {
        add(&key.object(), reason.as_str(), message);
    }
    for withheld in publish::checked(&mut publish::update(&outcome.delta), |_, _| None) {
        let route = withheld.part.as_ref().and_then(|part| RouteKey::of_envoy_route(&part.route));
        if let Some(route) = route {
            add(&route.object(), Reason::Invalid.as_str(), &withheld.text);
        }
    }
    let tenancy = pipeline.tenancy();
    for (namespace, gateway) in tenancy.dangling() {
        let key = ObjectKey::new(gatewright_core::inputs::Kind::Namespace, ObjectName::new("", namespace.clone()));
        let text = format!("label {GATEWAY_LABEL} names {gateway}, where there is no TenantGateway");
        add(&key, "DanglingInheritance", &text);
    }
    for name in tenancy.tenants() {
        let key = ObjectKey::new(gatewright_core::inputs::Kind::TenantGateway, name.clone());
        if let Some(readiness) = tenancy.readiness(name).filter(|readiness| readiness.reason != "Reconciled") {
            add(&key, readiness.reason, &readiness.message);
        }
        if !tenancy.governs(name) && tenancy.readiness(name).is_some_and(|readiness| !readiness.frozen) {
            add(&key, "ForeignObject", &format!("Gateway {name} is in a manifest of its own: remove that one"));
        }
    }
    for (claim, _, verdict) in tenancy.verdicts().filter(|(.., verdict)| !verdict.is_accepted()) {
        add(&claim.object(), verdict.reason.as_str(), &verdict.message);
    }
    let each = |((object, reason), messages): ((ObjectKey, String), BTreeSet<String>)| {
        messages.into_iter().map(move |message| Finding { object: object.clone(), reason: reason.clone(), message })
    };
    found.into_iter().flat_map(each).collect()
}

/// Returns whether a condition is an error of the object's author. `Programmed` is not known offline.
fn is_wrong(condition: &Condition) -> bool {
    condition.kind != ConditionType::Programmed && !condition.is_healthy()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize as _;

    fn check(text: &str) -> Vec<String> {
        let objects = serde_yaml_ng::Deserializer::from_str(text)
            .map(|document| Object::parse(serde_json::Value::deserialize(document).expect("YAML")).expect("an object"));
        let settings = Settings::new("gatewright.io/gateway-controller", Vec::new());
        let found = lint(objects.collect(), settings, tenancy::Settings::default(), SystemTime::UNIX_EPOCH);
        found.into_iter().map(|f| format!("{} {}: {}", f.object, f.reason, f.message)).collect()
    }

    const FAMILY: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: tenant-a, labels: {namespace.cozystack.io/host: a.org, namespace.cozystack.io/gateway: tenant-a}}
---
apiVersion: v1
kind: Namespace
metadata: {name: tenant-b, labels: {namespace.cozystack.io/host: a.org, namespace.cozystack.io/gateway: tenant-a}}
---
apiVersion: gateway.cozystack.io/v1alpha1
kind: TenantGateway
metadata: {name: cozystack, namespace: tenant-a}
spec: {apex: a.org}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: tenant-a}
spec: {ports: [{port: 80}]}
";

    fn route(namespace: &str, name: &str, host: &str, backend: &str) -> String {
        format!(
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
             metadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  \
             parentRefs: [{{name: cozystack, namespace: tenant-a}}]\n  hostnames: [{host}]\n  rules:\n  \
             - backendRefs: [{backend}]\n"
        )
    }

    #[test]
    fn inheritance_that_leads_nowhere_is_found() {
        let text = FAMILY.replace(
            "namespace.cozystack.io/gateway: tenant-a}}\n---\napiVersion: gateway",
            "namespace.cozystack.io/gateway: gone}}\n---\napiVersion: gateway",
        );
        let found = check(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("namespace tenant-b DanglingInheritance: "), "{found:?}");
    }

    #[test]
    fn valid_objects_are_not_mentioned() {
        assert_eq!(check(&(FAMILY.to_owned() + &route("tenant-a", "r", "x.a.org", "{name: web, port: 80}"))), [""; 0]);
    }

    #[test]
    fn conflicts_strangers_collisions_and_missing_grants_are_found() {
        let own = "{name: web, port: 80}";
        let found = check(
            &[
                FAMILY,
                &route("tenant-a", "r", "x.a.org", own),
                &route("tenant-b", "loser", "x.a.org", "{name: web, namespace: tenant-a, port: 80}"),
                &route("tenant-a", "stranger", "x.b.org", own),
                &route("tenant-a", "wide", "'*.a.org'", own),
            ]
            .concat(),
        );
        let parts = [
            "httproute tenant-a/stranger HostnameNotAllowed: x.b.org is not a.org or below it",
            "httproute tenant-a/wide WildcardNotIssuable: *.a.org",
            "httproute tenant-b/loser HostnameConflict: x.a.org already claimed",
            "httproute tenant-b/loser RefNotPermitted: ",
        ];
        assert_eq!(found.len(), parts.len(), "{found:#?}");
        for (found, part) in found.iter().zip(parts) {
            assert!(found.starts_with(part), "{found}");
        }
    }

    #[test]
    fn a_fault_of_a_tenant_gateway_names_the_field() {
        let found = check(&FAMILY.replace("apex: a.org", "apex: A.org"));
        assert!(found[0].starts_with("tenantgateway tenant-a/cozystack InvalidSpec: spec.apex"), "{found:?}");
        let gateway = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
                       metadata: {name: cozystack, namespace: tenant-a}\nspec:\n  gatewayClassName: x\n  \
                       listeners: [{name: a, port: 80, protocol: HTTP}]\n";
        let found = check(&(FAMILY.to_owned() + gateway));
        assert!(found.iter().any(|found| found.contains("ForeignObject")), "{found:?}");
    }
}
