//! BackendTLSPolicies among the objects, and their CA certificates.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use serde_json::json;

use super::rules::with_session;
use super::{NAMESPACES, gateway_object, object, pick};
use gatewright_objects::inputs::{
    CaBundle, CaBundleError, CaCertificate, ClusterTrustBundle, ConfigMap, ConfigMapData, Object,
};
use gatewright_objects::model::ObjectName;

fn valid_bundle(pem: &str) -> CaBundle {
    let year_3000 = SystemTime::UNIX_EPOCH + Duration::from_secs(32_503_680_000);
    CaBundle::new(vec![CaCertificate {
        pem: pem.into(),
        not_before: SystemTime::UNIX_EPOCH,
        not_after: year_3000,
    }])
}

/// BackendTLSPolicies, and the ConfigMaps and ClusterTrustBundles with their CA certificates.
pub(super) fn policy() -> impl Strategy<Value = Object> {
    let bundle = (pick(NAMESPACES), pick(&["good", "bad"])).prop_map(|(namespace, holds)| {
        let name = ObjectName::new(namespace, "ca");
        let bundle = match holds {
            "good" => Ok(Arc::new(valid_bundle("PEM"))),
            _ => Err(CaBundleError::Missing),
        };
        let data = Ok(ConfigMapData::default());
        Object::ConfigMap(ConfigMap { name, bundle, data })
    });
    let shared = pick(&["good", "bad"]).prop_map(|holds| {
        let bundle = match holds {
            "good" => Ok(Arc::new(valid_bundle("SHARED"))),
            _ => Err(CaBundleError::Missing),
        };
        Object::ClusterTrustBundle(ClusterTrustBundle {
            name: ObjectName::new("", "ca"),
            bundle,
        })
    });
    let targets = proptest::collection::vec((pick(&["web", "api"]), pick(&["", "p", "q"])), 1..3);
    let policy = (
        pick(NAMESPACES),
        pick(&["p", "o"]),
        0u32..3,
        targets,
        pick(&["ca", "shared", "System", "own.org/x"]),
    );
    let policy = policy.prop_map(|(namespace, name, created, targets, roots)| {
        let targets = targets.into_iter().map(|(service, section)| {
            let mut target = json!({"group": "", "kind": "Service", "name": service});
            if !section.is_empty() {
                target["sectionName"] = json!(section);
            }
            target
        });
        let mut validation = json!({"hostname": "web.internal"});
        match roots {
            "ca" => validation["caCertificateRefs"] = json!([{"group": "", "kind": "ConfigMap", "name": "ca"}]),
            "shared" => {
                validation["caCertificateRefs"] =
                    json!([{"group": "certificates.k8s.io", "kind": "ClusterTrustBundle", "name": "ca"}]);
            }
            other => validation["wellKnownCACertificates"] = json!(other),
        }
        let spec = json!({"targetRefs": targets.collect::<Vec<_>>(), "validation": validation});
        gateway_object("BackendTLSPolicy", namespace, name, created, spec)
    });
    prop_oneof![1 => bundle, 1 => shared, 2 => policy, 2 => traffic_policy(), 2 => backend_policy(), 2 => xbackend()]
}

/// Hosts outside of the cluster.
fn xbackend() -> impl Strategy<Value = Object> {
    let tls = pick(&["None", "ServerOnly", "ServerOnly", "ClientAndServer"]);
    let hostname = pick(&["api.example", "web.a.svc"]);
    (
        pick(NAMESPACES),
        0u32..3,
        hostname,
        pick(&["80", "443"]),
        tls,
    )
        .prop_map(|(namespace, created, hostname, port, mode)| {
            let port: u16 = port.parse().expect("a number");
            let mut tls = json!({"mode": mode});
            if mode != "None" {
                let roots = json!([{"group": "", "kind": "ConfigMap", "name": "ca"}]);
                tls["validation"] = json!({"hostname": hostname, "caCertificateRefs": roots});
            }
            object(
                json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackend",
                "metadata": {"namespace": namespace, "name": "x",
                    "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
                "spec": {"type": "ExternalHostname", "externalHostname": {"hostname": hostname},
                    "port": {"number": port}, "tls": tls}}),
            )
        })
}

/// Policies of retries and sessions.
fn traffic_policy() -> impl Strategy<Value = Object> {
    let targets = proptest::collection::btree_set(pick(&["web", "api"]), 1..3);
    let budget = proptest::option::of(pick(&["0", "50", "101"]));
    let policy = (
        pick(NAMESPACES),
        pick(&["p", "o"]),
        0u32..3,
        targets,
        budget,
        with_session(),
    );
    policy.prop_map(|(namespace, name, created, targets, budget, session)| {
        fn target(service: &str) -> serde_json::Value {
            json!({"group": "", "kind": "Service", "name": service})
        }
        let mut spec = json!({"targetRefs": targets.into_iter().map(target).collect::<Vec<_>>()});
        if let Some(percent) = budget {
            let percent: i64 = percent.parse().expect("a number");
            spec["retryConstraint"] = json!({"budget": {"percent": percent}});
        }
        session.into_iter().for_each(|session| spec["sessionPersistence"] = session);
        object(json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackendTrafficPolicy",
            "metadata": {"namespace": namespace, "name": name,
                "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")}, "spec": spec}))
    })
}

/// Policies of load balancing and checks.
fn backend_policy() -> impl Strategy<Value = Object> {
    let targets =
        proptest::collection::btree_set((pick(&["web", "api"]), pick(&["", "p", "q"])), 1..3);
    let balancing = pick(&["RoundRobin", "SourceIP", "Header", "wrong"]);
    let policy = (
        pick(NAMESPACES),
        pick(&["p", "o"]),
        0u32..3,
        targets,
        balancing,
        any::<bool>(),
    );
    policy.prop_map(|(namespace, name, created, targets, balancing, is_checked)| {
        let targets = targets.into_iter().map(|(service, section)| {
            let mut target = json!({"group": "", "kind": "Service", "name": service});
            if !section.is_empty() {
                target["sectionName"] = json!(section);
            }
            target
        });
        let balancer = match balancing {
            "SourceIP" => json!({"type": "ConsistentHash", "consistentHash": {"type": "SourceIP"}}),
            "Header" => json!({"type": "ConsistentHash", "consistentHash": {"type": "Header", "header": {"name": "x-user"}}}),
            // It has a hash without a key.
            "wrong" => json!({"type": "ConsistentHash"}),
            other => json!({"type": other}),
        };
        let mut spec = json!({"targetRefs": targets.collect::<Vec<_>>(), "loadBalancer": balancer});
        if is_checked {
            spec["healthCheck"] = json!({"active": {"type": "TCP"}});
        }
        object(json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
            "metadata": {"namespace": namespace, "name": name,
                "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")}, "spec": spec}))
    })
}
