//! Least privilege: every right of the roles in `deploy/` is used, and every used right is granted.
//! The audit log of the API server shows the used ones.

use e2e::apiserver::Definitions;
use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use e2e::apiserver::Request;
use e2e::cluster::{ACCOUNT, Cluster, NAMESPACE, is_true, service, tls_secret};
use e2e::deploy::{folder, manifests};
use e2e::port::free_port;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

/// Rights that other tests use, each with its test. An entry that is not granted any more is an
/// error.
const ELSEWHERE: [(&str, &[&str], &str); 21] = [
    (
        "secrets",
        &["create", "update", "delete"],
        "certificates: path, handover, storage",
    ),
    (
        "configmaps",
        &["get", "create", "update", "delete"],
        "certificates: path, storage",
    ),
    ("configmaps", &["patch"], "tenancy: first_come"),
    (
        "gateways",
        &["get", "create", "patch", "delete"],
        "tenancy: others, modes",
    ),
    (
        "listenersets",
        &["get", "create", "patch", "delete"],
        "tenancy: others, troubles",
    ),
    (
        "httproutes",
        &["get", "create", "patch", "delete"],
        "tenancy: others, modes",
    ),
    (
        "issuers",
        &["list", "watch", "get", "create", "patch", "delete"],
        "tenancy: others, modes",
    ),
    (
        "certificates",
        &["list", "watch", "get", "create", "patch", "delete"],
        "tenancy: others, modes",
    ),
    ("namespaces", &["patch"], "tenancy: others"),
    ("tenantgateways/status", &["patch"], "tenancy: modes"),
    ("podtemplates", &["list", "watch"], "isolated"),
    (
        "deployments",
        &["list", "watch", "get", "create", "patch", "delete"],
        "isolated",
    ),
    (
        "horizontalpodautoscalers",
        &["list", "watch", "create", "patch", "delete"],
        "isolated: autoscaling",
    ),
    (
        "serviceaccounts",
        &["list", "watch", "create", "patch", "delete"],
        "isolated",
    ),
    (
        "poddisruptionbudgets",
        &["list", "watch", "create", "patch", "delete"],
        "isolated",
    ),
    ("tokenreviews", &["create"], "pod_identity, pods, isolated"),
    ("pods", &["get"], "pod_identity, pods, isolated"),
    (
        "reportrequests",
        &["list", "watch", "delete", "deletecollection"],
        "reports",
    ),
    ("reportrequests/status", &["patch"], "reports"),
    ("pods/log", &["get"], "pods: logs"),
    // Checked by an admission plugin, so that no request of ours shows it.
    (
        "tenantgateways/finalizers",
        &["update"],
        "admission plugin OwnerReferencesPermissionEnforcement",
    ),
];

/// A right: scope, resource, names and verb.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    /// True if it is granted in our namespace only.
    local: bool,
    resource: String,
    names: BTreeSet<String>,
    verb: String,
}

impl Right {
    fn covers(&self, request: &Request) -> bool {
        let (namespace, name) = request
            .object
            .split_once('/')
            .unwrap_or(("", request.object.as_str()));
        let here = !self.local || request.object == NAMESPACE || namespace == NAMESPACE;
        let named = self.names.is_empty() || self.names.contains(name);
        // An apply of a missing object creates it. Servers before 1.34 are listed; later ones begin
        // a watch with the existing objects.
        let verb = match self.verb.as_str() {
            "create" => request.verb == "create" || request.verb == "patch" && request.code == 201,
            "list" => matches!(request.verb.as_str(), "list" | "watch"),
            verb => request.verb == verb,
        };
        verb && here && named && self.resource == request.resource && request.code < 400
    }
}

fn given() -> Result<BTreeSet<Right>> {
    let mut all = BTreeSet::new();
    let roles = manifests(&folder())?.into_iter().filter(|(path, _)| {
        // Those of people.
        path.file_name() != Some("roles.yaml".as_ref())
    });
    for (_, role) in roles {
        let texts = |value: &Value| -> Vec<String> {
            value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect()
        };
        for rule in role["rules"].as_array().into_iter().flatten() {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    assert!(
                        resource != "*"
                            && verb != "*"
                            && !texts(&rule["apiGroups"]).contains(&"*".to_owned())
                    );
                    all.insert(Right {
                        local: role["kind"] == "Role",
                        resource: resource.clone(),
                        names: texts(&rule["resourceNames"]).into_iter().collect(),
                        verb,
                    });
                }
            }
        }
    }
    Ok(all)
}

fn gateway(class: &str, port: u16) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": class, "allowedListeners": {"namespaces": {"from": "Same"}}, "listeners": [
            {"name": "https", "protocol": "HTTPS", "port": port, "hostname": "a.example.org",
                "tls": {"certificateRefs": [{"name": "cert"}]}},
            {"name": "tls", "protocol": "TLS", "port": port, "hostname": "b.example.org", "tls": {"mode": "Passthrough"}}]}})
}

fn route(kind: &str, host: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": kind, "metadata": {"name": "r", "namespace": "default"},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [host],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn every_right_that_is_given_is_used_and_none_is_missing() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server.install(Definitions::Ours).await?;
    for object in service(NAMESPACE, "gatewright-envoy", 80)
        .into_iter()
        .chain(service("default", "web", 1))
    {
        server.put(object).await?;
    }
    // Unusable keys are replaced.
    server
        .put(json!({"apiVersion": "v1", "kind": "Secret", "type": "gatewright.io/xds",
            "metadata": {"name": "gatewright-envoy", "namespace": NAMESPACE}, "stringData": {"ca.crt": "of old"}}))
        .await?;
    let mut one = cluster.controller("one")?;
    one.line("secret gatewright-system/gatewright-envoy is new")
        .await?;
    let (mut two, xds) = cluster.replica_with_xds("two")?;
    two.line("xDS at").await?;
    // An Envoy of the replica that is not the lease holder: its record.
    let (_envoy, _tls) = cluster.envoy_of("envoy-b", xds).await?;

    // Every kind whose status is written, in a class whose Gateways have Services.
    let parameters = |fleet: &str| {
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"name": "p", "namespace": "default"}, "spec": {"fleet": fleet}})
    };
    server.put(parameters("Dedicated")).await?;
    let reference = json!({"group": "gatewright.io", "kind": "GatewayParameters", "namespace": "default", "name": "p"});
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "own"},
            "spec": {"controllerName": "gatewright.io/gateway-controller", "parametersRef": reference}}))
        .await?;
    server
        .put(tls_secret("default", "cert", &["a.example.org"])?)
        .await?;
    let port = free_port()?;
    server.put(gateway("own", port)).await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "ListenerSet", "metadata": {"name": "more", "namespace": "default"},
            "spec": {"parentRef": {"name": "edge"}, "listeners": [
                {"name": "c", "protocol": "TLS", "port": port, "hostname": "c.example.org", "tls": {"mode": "Passthrough"}}]}}))
        .await?;
    server.put(route("HTTPRoute", "a.example.org")).await?;
    server.put(route("TLSRoute", "b.example.org")).await?;
    cluster
        .until(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "default",
            "edge-own-v4",
            |o| o["ports"].is_array(),
        )
        .await?;
    let told = |o: &Value| o["status"]["parents"][0]["conditions"].is_array();
    for kind in ["HTTPRoute", "TLSRoute"] {
        cluster.until(GATEWAY, kind, "default", "r", told).await?;
    }
    cluster
        .until(GATEWAY, "ListenerSet", "default", "more", |o| {
            is_true(&o["status"], "Accepted")
        })
        .await?;
    for kind in ["TCPRoute", "UDPRoute"] {
        let spec = json!({"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]});
        let metadata = json!({"name": "r", "namespace": "default"});
        server
            .put(json!({"apiVersion": GATEWAY, "kind": kind, "metadata": metadata, "spec": spec}))
            .await?;
        cluster.until(GATEWAY, kind, "default", "r", told).await?;
    }
    let validation = json!({"hostname": "web.example.org", "wellKnownCACertificates": "System"});
    let targets = json!([{"group": "", "kind": "Service", "name": "web"}]);
    server
        .put(
            json!({"apiVersion": GATEWAY, "kind": "BackendTLSPolicy", "metadata": {"name": "p", "namespace": "default"},
            "spec": {"targetRefs": &targets, "validation": validation}}),
        )
        .await?;
    server
        .put(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"targetRefs": targets, "loadBalancer": {"type": "RoundRobin"}}}),
        )
        .await?;
    cluster
        .until(
            "gatewright.io/v1alpha1",
            "TrafficPolicy",
            "default",
            "p",
            |o| o["status"]["ancestors"][0]["conditions"].is_array(),
        )
        .await?;
    let guarded = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "r"});
    server
        .put(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "AccessPolicy",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"targetRefs": [guarded], "clientAddress": {"allow": ["192.0.2.0/24"]}}}),
        )
        .await?;
    cluster
        .until(
            "gatewright.io/v1alpha1",
            "AccessPolicy",
            "default",
            "p",
            |o| o["status"]["ancestors"][0]["conditions"].is_array(),
        )
        .await?;
    cluster
        .until(GATEWAY, "BackendTLSPolicy", "default", "p", |o| {
            o["status"]["ancestors"][0]["conditions"].is_array()
        })
        .await?;
    // Services are deleted again.
    server.put(parameters("Shared")).await?;
    cluster
        .until("v1", "Service", "default", "edge-own", Value::is_null)
        .await?;
    cluster
        .until(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "default",
            "edge-own-v4",
            Value::is_null,
        )
        .await?;
    // A claim at the Gateway of a TenantGateway, which is reported by an Event as well.
    let tenant = |apex: &str| {
        json!({"apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway",
            "metadata": {"name": "t", "namespace": "default"}, "spec": {"apex": apex, "certMode": "existingSecret",
                "wildcardSecretRef": {"name": "cert"}, "gatewayClassName": "own"}})
    };
    server.put(tenant("t.example.org")).await?;
    let mut claim = route("GRPCRoute", "x.elsewhere.org");
    claim["spec"]["parentRefs"] = json!([{"name": "t"}]);
    server.put(claim).await?;
    cluster
        .until(GATEWAY, "GRPCRoute", "default", "r", told)
        .await?;
    cluster.quiet().await?;

    let given = given()?;
    let elsewhere = |right: &Right| {
        ELSEWHERE.iter().any(|(resource, verbs, _)| {
            *resource == right.resource && verbs.contains(&right.verb.as_str())
        })
    };
    let unused = || -> Result<Vec<&Right>> {
        let mut used = server.requests()?;
        used.retain(|request| request.user == ACCOUNT);
        let is_used = |right: &Right| used.iter().any(|request| right.covers(request));
        Ok(given
            .iter()
            .filter(|right| !elsewhere(right) && !is_used(right))
            .collect())
    };
    // Open watches are in the audit log once they have ended.
    let mut running = Some((one, two));
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let left = unused()?;
        if left
            .iter()
            .all(|right| matches!(&*right.verb, "list" | "watch"))
        {
            running = None;
        }
        if left.is_empty() {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "given, and never used: {left:#?}"
        );
        sleep(Duration::from_millis(200)).await;
    }
    drop(running);
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    for (resource, verbs, by) in ELSEWHERE {
        for verb in verbs {
            let there = given
                .iter()
                .any(|right| right.resource == resource && right.verb == *verb);
            assert!(
                there,
                "{by} is said to use {verb} on {resource}, which is not given"
            );
        }
    }
    assert!(
        server
            .requests()?
            .iter()
            .any(|request| request.user == ACCOUNT && request.verb == "watch"),
        "watches that ended are in the log"
    );
    Ok(())
}
