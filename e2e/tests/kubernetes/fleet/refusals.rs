//! Refusals by the API server of a dedicated Gateway's Service: the Gateway's status has the
//! message until it is accepted, and no other Gateway is affected.

use anyhow::{Context, Result};
use e2e::cluster::{BACKEND, Cluster, is_true};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{GATEWAY, class, dedicated, gateway, give, parameters, target, told};

/// A quota without room for load balancers, with the counts of its controller.
async fn quota(cluster: &Cluster, namespace: &str) -> Result<()> {
    let hard = json!({"services.loadbalancers": "0"});
    cluster
        .server
        .put(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": namespace},
            "spec": {"hard": hard}}))
        .await?;
    let quotas = cluster.server.api("v1", "ResourceQuota", namespace).await?;
    let counted = json!({"status": {"hard": hard, "used": hard}});
    quotas
        .patch_status("none", &Default::default(), &Patch::Merge(&counted))
        .await?;
    Ok(())
}

async fn add(cluster: &Cluster, namespace: &str) -> Result<()> {
    cluster
        .server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn the_refusal_of_a_service_is_in_the_status_of_its_gateway_until_it_is_accepted()
-> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    dedicated(&cluster).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    for namespace in ["anna", "bert", "clara"] {
        add(&cluster, namespace).await?;
    }

    // The quota has no room for Anna's Service. Bert's is made all the same.
    quota(&cluster, "anna").await?;
    server
        .put(gateway("anna", "own", 443, &["web.example.org"]))
        .await?;
    let annas = cluster
        .until(GATEWAY, "Gateway", "anna", "edge", |o| {
            told(&o["status"], "Programmed")
                .1
                .contains("exceeded quota")
        })
        .await?;
    let (reason, text) = told(&annas["status"], "Programmed");
    assert_eq!(reason, "AddressNotAssigned");
    assert!(
        text.starts_with("Service anna/edge-own: refused: "),
        "{text}"
    );
    server
        .put(gateway("bert", "own", 443, &["web.example.org"]))
        .await?;
    cluster
        .until("v1", "Service", "bert", "edge-own", |o| target(o).is_some())
        .await?;
    let (_, metrics) = controller.probe("/metrics").await?;
    let is = |line: &str| metrics.lines().any(|told| told == line);
    assert!(
        is("gatewright_service_troubles 1"),
        "Anna's alone: {metrics}"
    );
    assert!(
        metrics.contains("gatewright_service_write_failures_total{class=\"refused\"}"),
        "{metrics}"
    );
    server
        .api("v1", "ResourceQuota", "anna")
        .await?
        .delete("none", &Default::default())
        .await?;
    cluster
        .until("v1", "Service", "anna", "edge-own", |o| target(o).is_some())
        .await?;
    let no_address = |o: &Value| {
        told(&o["status"], "Programmed")
            .1
            .contains("has no address yet")
    };
    cluster
        .until(GATEWAY, "Gateway", "anna", "edge", no_address)
        .await?;
    // The next cause: there is no certificate.
    give(&cluster, "anna", "edge-own", BACKEND).await?;
    server
        .put(e2e::cluster::tls_secret(
            "anna",
            "cert",
            &["web.example.org"],
        )?)
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "anna", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;

    // A policy rejects a further port: the others stay served, and the status names the missing
    // one.
    server
        .put(json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "no-8443"}, "spec": {"failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"], "resources": ["services"]}]},
                "validations": [{"expression": "object.spec.ports.all(p, p.port != 8443)", "message": "port 8443 is not for you"}]}}))
        .await?;
    server
        .put(json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "no-8443"}, "spec": {"policyName": "no-8443", "validationActions": ["Deny"]}}))
        .await?;
    let services = server.api("v1", "Service", "clara").await?;
    let probe = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "probe"}, "spec": {"ports": [{"port": 8443}]}});
    for attempt in 0.. {
        // Until the policy takes effect in the server.
        let outcome = services
            .patch("probe", &PatchParams::apply("test"), &Patch::Apply(&probe))
            .await;
        if outcome.is_err() {
            break;
        }
        services.delete("probe", &Default::default()).await?;
        assert!(attempt < 1000, "the policy is not enforced");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let mut wider = gateway("anna", "own", 443, &["web.example.org"]);
    let mut second = wider["spec"]["listeners"][0].clone();
    (second["name"], second["port"]) = (json!("second"), json!(8443));
    wider["spec"]["listeners"]
        .as_array_mut()
        .context("a list")?
        .push(second);
    server.put(wider).await?;
    let annas = cluster
        .until(GATEWAY, "Gateway", "anna", "edge", |o| {
            told(&o["status"], "Programmed")
                .1
                .contains("port 8443 is not for you")
        })
        .await?;
    assert_eq!(
        annas["status"]["addresses"][0]["value"], BACKEND,
        "it is reached as before"
    );
    cluster
        .until(GATEWAY, "Gateway", "anna", "edge", |o| {
            is_true(&o["status"]["listeners"][0], "Programmed")
                && !is_true(&o["status"]["listeners"][1], "Programmed")
        })
        .await?;
    let bindings = server
        .api(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
            "",
        )
        .await?;
    bindings.delete("no-8443", &Default::default()).await?;
    cluster
        .until(GATEWAY, "Gateway", "anna", "edge", |o| {
            is_true(&o["status"], "Programmed")
                && is_true(&o["status"]["listeners"][1], "Programmed")
        })
        .await?;

    // A right is missing.
    let roles = server
        .api("rbac.authorization.k8s.io/v1", "ClusterRole", "")
        .await?;
    let full = roles.get("gatewright-controller").await?;
    let mut rules = full.data["rules"].clone();
    for rule in rules.as_array_mut().context("rules")? {
        let of_services = rule["resources"]
            .as_array()
            .is_some_and(|all| all.contains(&json!("services")));
        if of_services {
            rule["verbs"] = json!(["get", "list", "watch"]);
        }
    }
    roles
        .patch(
            "gatewright-controller",
            &PatchParams::default(),
            &Patch::Merge(&json!({"rules": rules})),
        )
        .await?;
    server
        .until_may(
            e2e::cluster::ACCOUNT,
            ("create", "", "services", "clara"),
            false,
        )
        .await?;
    let users = |o: &Value| told(&o["status"], "Programmed").1;
    server
        .put(gateway("clara", "own", 443, &["web.example.org"]))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "clara", "edge", |o| {
            users(o).contains("not allowed: ") && users(o).contains("resource \"services\"")
        })
        .await?;
    let rules = json!({"rules": full.data["rules"]});
    roles
        .patch(
            "gatewright-controller",
            &PatchParams::default(),
            &Patch::Merge(&rules),
        )
        .await?;
    cluster
        .until("v1", "Service", "clara", "edge-own", |o| {
            target(o).is_some()
        })
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "clara", "edge", no_address)
        .await?;
    let (_, metrics) = controller.probe("/metrics").await?;
    assert!(
        metrics
            .lines()
            .any(|line| line == "gatewright_service_troubles 0"),
        "all is well again: {metrics}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn foreign_objects_under_our_names_are_left_and_reported() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    dedicated(&cluster).await?;
    let slice = |name: &str, service: &str, labels: Value| {
        let mut slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "endpoints": [{"addresses": ["192.0.2.9"]}], "ports": [{"name": "x", "port": 1}]});
        slice["metadata"]["labels"]["kubernetes.io/service-name"] = json!(service);
        slice
    };
    // A foreign slice under the very name, and one beside it, with a label that claims to be ours.
    server
        .put(slice("edge-own-v4", "edge-own", json!({})))
        .await?;
    let ours = json!({"endpointslice.kubernetes.io/managed-by": "gatewright", "app.kubernetes.io/managed-by": "gatewright"});
    server
        .put(slice("edge-own-by-hand", "edge-own", ours))
        .await?;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    server
        .put(gateway("default", "own", 443, &["web.example.org"]))
        .await?;
    cluster
        .until("v1", "Service", "default", "edge-own", |o| {
            target(o).is_some()
        })
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            told(&o["status"], "Programmed")
                .1
                .contains("EndpointSlice default/edge-own-v4 belongs to another owner")
        })
        .await?;
    let slices = server
        .api("discovery.k8s.io/v1", "EndpointSlice", "default")
        .await?;
    assert_eq!(
        slices.get("edge-own-v4").await?.data["endpoints"][0]["addresses"],
        json!(["192.0.2.9"])
    );
    slices.delete("edge-own-v4", &Default::default()).await?;
    cluster
        .until(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "default",
            "edge-own-v4",
            |o| o["endpoints"][0]["addresses"] == json!([BACKEND]),
        )
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            told(&o["status"], "Programmed")
                .1
                .contains("has no address yet")
        })
        .await?;

    // The fleet changes: our objects are deleted, and nothing else.
    server
        .put(parameters("own", json!({"fleet": "Shared"})))
        .await?;
    server
        .put(class("own", Some(("GatewayParameters", "own"))))
        .await?;
    cluster
        .until("v1", "Service", "default", "edge-own", Value::is_null)
        .await?;
    assert!(
        slices.get_opt("edge-own-v4").await?.is_none(),
        "it goes before the Service"
    );
    assert!(
        slices.get_opt("edge-own-by-hand").await?.is_some(),
        "it has no owner reference of ours"
    );
    Ok(())
}
