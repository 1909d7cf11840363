//! Statuses that would be longer than the definitions allow: what fits is written, and the rest is
//! said.

use anyhow::Result;
use e2e::cluster::{Cluster, condition};
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
