//! Statuses that would be longer than the definitions allow: what fits is written, and the rest is
//! said.

use anyhow::Result;
use e2e::cluster::{Cluster, condition, service};
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
async fn entries_without_room_are_told() -> Result<()> {
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
    lists_of_routes_and_policies(&cluster, namespace).await?;
    cluster.quiet().await?;
    Ok(())
}

/// Fills the parents of a route, the ancestors of a policy, and the kinds of a listener.
async fn lists_of_routes_and_policies(cluster: &Cluster, namespace: &str) -> Result<()> {
    const OURS: &str = "gatewright.io/v1alpha1";
    let server = &cluster.server;
    let port = free_port()?;
    let kinds = ["HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute", "UDPRoute"];
    let kinds: Vec<Value> = kinds
        .iter()
        .map(|kind| json!({"kind": kind}))
        .chain(
            ["HTTPRoute", "GRPCRoute", "HTTPRoute"]
                .map(|kind| json!({"group": "gateway.networking.k8s.io", "kind": kind})),
        )
        .collect();
    let names: Vec<String> = (0..17).map(|number| format!("g{number:02}")).collect();
    for name in &names {
        server
            .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": namespace},
                "spec": {"gatewayClassName": "gatewright", "listeners": [{"name": "http", "protocol": "HTTP",
                    "port": port, "hostname": format!("{name}.example.org"), "allowedRoutes": {"kinds": &kinds}}]}}))
            .await?;
    }
    for object in service(namespace, "web", 8080) {
        server.put(object).await?;
    }
    let parents: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "many", "namespace": namespace},
            "spec": {"parentRefs": parents, "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
        .await?;
    let theirs: Vec<Value> = (0..16)
        .map(|number| {
            json!({"controllerName": "example.org/theirs", "parentRef": {"name": format!("t{number}")},
                "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        })
        .collect();
    let routes = server.api(GATEWAY, "HTTPRoute", namespace).await?;
    routes
        .patch_status(
            "many",
            &PatchParams::default(),
            &Patch::Merge(&json!({"status": {"parents": theirs}})),
        )
        .await?;
    let target = json!({"group": "", "kind": "Service", "name": "web"});
    server
        .put(json!({"apiVersion": OURS, "kind": "TrafficPolicy", "metadata": {"name": "many", "namespace": namespace},
            "spec": {"targetRefs": [target], "loadBalancer": {"type": "Random"}}}))
        .await?;
    let is_full = |object: &Value, list: &str, maximum: usize, text: &str| {
        let entries = object["status"][list].as_array();
        let mut own = entries
            .into_iter()
            .flatten()
            .filter(|entry| entry["controllerName"] == "gatewright.io/gateway-controller");
        entries.map(Vec::len) == Some(maximum)
            && own.all(|entry| {
                condition(entry, "Accepted").is_some_and(|accepted| {
                    accepted["message"]
                        .as_str()
                        .is_some_and(|message| message.ends_with(text))
                })
            })
    };
    cluster
        .until(GATEWAY, "HTTPRoute", namespace, "many", |o| {
            let text = "status.parents has room for 32 of 33 items";
            is_full(o, "parents", 32, text)
        })
        .await?;
    cluster
        .until(OURS, "TrafficPolicy", namespace, "many", |o| {
            let text = "status.ancestors has room for 16 of 17 items";
            is_full(o, "ancestors", 16, text)
        })
        .await?;
    // Of eight kinds that a listener may name, two are supported.
    cluster
        .until(GATEWAY, "Gateway", namespace, "g16", |o| {
            let kinds = o["status"]["listeners"][0]["supportedKinds"].as_array();
            kinds.map(Vec::len) == Some(2)
                && condition(&o["status"]["listeners"][0], "ResolvedRefs")
                    .is_some_and(|refs| refs["reason"] == "InvalidRouteKinds")
        })
        .await?;
    let class = server.api(GATEWAY, "GatewayClass", "").await?;
    let class = class.get("gatewright").await?;
    let features = class.data["status"]["supportedFeatures"].as_array();
    assert!(
        features.is_some_and(|features| (48..=64).contains(&features.len())),
        "all have room: {:#}",
        class.data["status"]
    );
    Ok(())
}
