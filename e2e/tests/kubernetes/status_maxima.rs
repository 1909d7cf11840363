//! Statuses that would be longer than the definitions allow: what fits is written, and the rest is
//! said.

use anyhow::Result;
use e2e::apiserver::Definitions;
use e2e::cluster::{Cluster, condition, tls_secret};
use e2e::port::free_port;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::fleet;

const GATEWAY: &str = fleet::GATEWAY;

fn addresses() -> Vec<String> {
    (1..=17).map(|number| format!("192.0.2.{number}")).collect()
}

fn message<'a>(object: &'a Value, kind: &str) -> &'a str {
    condition(&object["status"], kind)
        .and_then(|found| found["message"].as_str())
        .unwrap_or_default()
}

/// Returns true if a status has as many addresses as it has room for, and says that there are more.
fn is_full(object: &Value) -> bool {
    object["status"]["addresses"].as_array().map(Vec::len) == Some(16)
        && message(object, "Programmed").ends_with("status.addresses has room for 16 of 17 items")
        && condition(&object["status"], "Programmed").is_some_and(|programmed| {
            programmed["observedGeneration"] == object["metadata"]["generation"]
        })
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn a_gateway_with_too_many_addresses_has_a_status() -> Result<()> {
    let cluster = Cluster::start().await?.reached_by_its_service();
    let server = &cluster.server;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    fleet::dedicated(&cluster).await?;
    let shared = format!("envoys.addresses={:?}", addresses());
    let mut controller = cluster.controller_with("one", &["--set", &shared])?;
    controller.line("holding the lease").await?;
    for (namespace, class) in [("many-shared", "gatewright"), ("many-own", "own")] {
        fleet::tenant(
            &cluster,
            namespace,
            class,
            free_port()?,
            &["web.example.org"],
        )
        .await?;
    }
    let services = server.api("v1", "Service", "many-own").await?;
    cluster
        .until("v1", "Service", "many-own", "edge-own", |service| {
            service["metadata"]["uid"].is_string()
        })
        .await?;
    let ingress: Vec<Value> = addresses().iter().map(|ip| json!({"ip": ip})).collect();
    let balanced = json!({"status": {"loadBalancer": {"ingress": ingress}}});
    services
        .patch_status(
            "edge-own",
            &PatchParams::default(),
            &Patch::Merge(&balanced),
        )
        .await?;
    for namespace in ["many-shared", "many-own"] {
        cluster
            .until(GATEWAY, "Gateway", namespace, "edge", is_full)
            .await?;
    }
    cluster.quiet().await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn conditions_without_room_are_named() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    let namespace = "many-conditions";
    fleet::tenant(
        &cluster,
        namespace,
        "former",
        free_port()?,
        &["web.example.org"],
    )
    .await?;
    // Another controller has all but one.
    let theirs: Vec<Value> = (0..7)
        .map(|number| {
            json!({"type": format!("example.org/C{number}"), "status": "True", "reason": "Theirs", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        })
        .collect();
    let gateways = server.api(GATEWAY, "Gateway", namespace).await?;
    let status = json!({"status": {"conditions": theirs, "listeners": [
        {"name": "l0", "attachedRoutes": 0, "supportedKinds": [], "conditions": theirs}]}});
    gateways
        .patch_status("edge", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    let class = json!({"spec": {"gatewayClassName": "gatewright"}});
    gateways
        .patch("edge", &PatchParams::default(), &Patch::Merge(&class))
        .await?;
    let told = cluster
        .until(GATEWAY, "Gateway", namespace, "edge", |o| {
            message(o, "Accepted").contains("no room for the conditions Programmed")
        })
        .await?;
    assert_eq!(
        told["status"]["conditions"].as_array().map(Vec::len),
        Some(8),
        "theirs stay: {:#}",
        told["status"]
    );
    let listener = &told["status"]["listeners"][0];
    assert_eq!(
        listener["conditions"].as_array().map(Vec::len),
        Some(8),
        "those of a listener as well: {listener:#}"
    );
    cluster.quiet().await?;
    Ok(())
}

/// Returns the message of our entry at a place of a list.
fn entry<'a>(object: &'a Value, list: &str, index: usize) -> Option<&'a str> {
    condition(&object["status"][list][index], "Accepted")
        .and_then(|accepted| accepted["message"].as_str())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn parents_and_ancestors_without_room_are_told() -> Result<()> {
    let cluster = Cluster::with(&[Definitions::Ours]).await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let (namespace, port) = ("many-parents", free_port()?);
    let hosts: Vec<String> = (0..34).map(|n| format!("h{n}.example.org")).collect();
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
        .await?;
    let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
    server.put(tls_secret(namespace, "cert", &names)?).await?;
    for (number, hosts) in hosts.chunks(2).enumerate() {
        let listeners: Vec<Value> = ["one", "two"]
            .iter()
            .zip(hosts)
            .map(|(name, host)| {
                json!({"name": name, "protocol": "HTTPS", "port": port, "hostname": host,
                    "tls": {"certificateRefs": [{"name": "cert"}]}})
            })
            .collect();
        server
            .put(json!({"apiVersion": GATEWAY, "kind": "Gateway",
                "metadata": {"name": format!("g{number}"), "namespace": namespace},
                "spec": {"gatewayClassName": "gatewright", "listeners": listeners}}))
            .await?;
    }
    let parents: Vec<Value> = (0..32)
        .map(|number| {
            json!({"name": format!("g{}", number % 17),
                "sectionName": if number < 17 { "one" } else { "two" }})
        })
        .collect();
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"parentRefs": parents, "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
        .await?;
    // Another controller has one of the 32 entries.
    let theirs = json!({"status": {"parents": [{"controllerName": "example.org/theirs",
        "parentRef": {"name": "theirs"}, "conditions": [{"type": "Accepted", "status": "True",
            "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]}});
    server
        .api(GATEWAY, "HTTPRoute", namespace)
        .await?
        .patch_status("web", &PatchParams::default(), &Patch::Merge(&theirs))
        .await?;
    let policy = "gatewright.io/v1alpha1";
    server
        .put(json!({"apiVersion": policy, "kind": "TrafficPolicy",
            "metadata": {"name": "packed", "namespace": namespace},
            "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"}],
                "compression": {}}}))
        .await?;

    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    let route = cluster
        .until(GATEWAY, "HTTPRoute", namespace, "web", |route| {
            entry(route, "parents", 31).is_some_and(|message| {
                message.ends_with("status.parents has room for 32 of 33 items")
            })
        })
        .await?;
    let parents = route["status"]["parents"].as_array().map(Vec::as_slice);
    let parents = parents.unwrap_or_default();
    assert_eq!(parents.len(), 32, "there are as many as fit");
    assert_eq!(
        parents[0]["controllerName"], "example.org/theirs",
        "theirs stays"
    );
    let told = cluster
        .until(policy, "TrafficPolicy", namespace, "packed", |policy| {
            entry(policy, "ancestors", 15).is_some_and(|message| {
                message.ends_with("status.ancestors has room for 16 of 17 items")
            })
        })
        .await?;
    let ancestors = told["status"]["ancestors"].as_array().map(Vec::len);
    assert_eq!(ancestors, Some(16), "there are as many as fit");
    cluster.quiet().await?;
    Ok(())
}
