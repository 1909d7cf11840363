//! Gateways of fleet Dedicated, with a Service and ports of the Envoys of their own.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use e2e::cluster::{BACKEND, Cluster, condition, is_true, service};
use e2e::echo::Echo;
use serde_json::{Value, json};

use super::{GATEWAY, answer, dedicated, give, parameters, target, tenant};

/// The number of Gateways that are made at once.
const GATEWAYS: usize = 12;

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn gateways_of_the_dedicated_fleet_have_a_service_and_ports_of_their_own() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    dedicated(&cluster).await?;
    let alice = Echo::start_on("alice", BACKEND).await?;
    let bob = Echo::start_on("bob", BACKEND).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    // The same hostname on the same port twice: each Gateway serves its own.
    let mut ports = BTreeSet::new();
    for (name, echo) in [("alice", &alice), ("bob", &bob)] {
        tenant(&cluster, name, "own", 443, &["web.example.org"]).await?;
        for object in service(name, "web", echo.address().port()) {
            server.put(object).await?;
        }
        let made = cluster
            .until("v1", "Service", name, "edge-own", |o| target(o).is_some())
            .await?;
        assert_eq!(
            made["metadata"]["labels"]["gateway.networking.k8s.io/gateway-name"],
            "edge"
        );
        assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "Gateway");
        let reason = |o: &Value| {
            condition(&o["status"], "Programmed")
                .map(|c| c["reason"].clone())
                .unwrap_or_default()
        };
        cluster
            .until(GATEWAY, "Gateway", name, "edge", |o| {
                reason(o) == "AddressNotAssigned"
            })
            .await?;
        give(&cluster, name, "edge-own", BACKEND).await?;
        let gateway = cluster
            .until(GATEWAY, "Gateway", name, "edge", |o| {
                is_true(&o["status"], "Programmed")
            })
            .await?;
        assert_eq!(
            gateway["status"]["addresses"],
            json!([{"type": "IPAddress", "value": BACKEND}])
        );
        let port = target(&made).context("a port")?;
        ports.insert(port);
        assert_eq!(
            answer(SocketAddr::from(([127, 0, 0, 1], port)), "web.example.org").await?,
            name
        );
        let slice = cluster
            .until(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                name,
                "edge-own-v4",
                |o| o["ports"][0]["port"] == port,
            )
            .await?;
        assert_eq!(slice["endpoints"][0]["addresses"], json!([BACKEND]));
    }
    assert_eq!(ports.len(), 2, "each has a port of the Envoys of its own");

    // Requested labels and annotations of a Gateway are added and removed.
    let api = server.api(GATEWAY, "Gateway", "alice").await?;
    let ask = |infrastructure: Value| json!({"spec": {"infrastructure": infrastructure}});
    let asked = ask(json!({"labels": {"team": "blue"}, "annotations": {"example.org/pool": "a"}}));
    api.patch(
        "edge",
        &Default::default(),
        &kube::api::Patch::Merge(&asked),
    )
    .await?;
    for (version, kind, name) in [
        ("v1", "Service", "edge-own"),
        ("discovery.k8s.io/v1", "EndpointSlice", "edge-own-v4"),
    ] {
        let there = cluster
            .until(version, kind, "alice", name, |o| {
                o["metadata"]["labels"]["team"] == "blue"
            })
            .await?;
        assert_eq!(there["metadata"]["annotations"]["example.org/pool"], "a");
    }
    api.patch(
        "edge",
        &Default::default(),
        &kube::api::Patch::Merge(&ask(Value::Null)),
    )
    .await?;
    cluster
        .until("v1", "Service", "alice", "edge-own", |o| {
            o["metadata"]["labels"]["team"].is_null()
        })
        .await?;

    // Changes of our fields by others are reverted; then nothing is written any more.
    let services = server.api("v1", "Service", "alice").await?;
    let there = serde_json::to_value(services.get("edge-own").await?)?;
    let other = json!({"spec": {"ports": [{"port": 443, "name": "p443", "targetPort": 1, "protocol": "TCP"}]}});
    services
        .patch(
            "edge-own",
            &Default::default(),
            &kube::api::Patch::Merge(&other),
        )
        .await?;
    cluster
        .until("v1", "Service", "alice", "edge-own", |o| {
            target(o) == target(&there)
        })
        .await?;
    let quiet = cluster.quiet().await?;

    // A restart keeps the ports, writes nothing, and all hosts stay served.
    drop(controller);
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(cluster.writes()?[quiet..], []);
    for port in &ports {
        answer(SocketAddr::from(([127, 0, 0, 1], *port)), "web.example.org").await?;
    }

    // A class whose parameters are missing for a moment keeps all addresses; another kind of fleet
    // does not.
    let all = server
        .api("gatewright.io/v1alpha1", "GatewayParameters", "default")
        .await?;
    all.delete("own", &Default::default()).await?;
    let reason = |o: &Value| {
        condition(&o["status"], "Accepted")
            .map(|c| c["reason"].clone())
            .unwrap_or_default()
    };
    cluster
        .until(GATEWAY, "Gateway", "bob", "edge", |o| {
            reason(o) == "InvalidParameters"
        })
        .await?;
    assert!(
        server
            .api("v1", "Service", "bob")
            .await?
            .get_opt("edge-own")
            .await?
            .is_some()
    );
    server
        .put(parameters("own", json!({"fleet": "Shared"})))
        .await?;
    cluster
        .until("v1", "Service", "bob", "edge-own", Value::is_null)
        .await?;
    cluster
        .until(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "bob",
            "edge-own-v4",
            Value::is_null,
        )
        .await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

/// The watches of Services and of EndpointSlices are two: that of the Services brings a new one
/// while the other has not brought the slices that were written with it.
#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn no_service_and_no_slice_is_created_twice() -> Result<()> {
    let cluster = Cluster::start().await?;
    dedicated(&cluster).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let names: Vec<String> = (0..GATEWAYS).map(|i| format!("t{i}")).collect();
    for name in &names {
        let host = format!("{name}.example.org");
        tenant(&cluster, name, "own", 443, &[&host]).await?;
    }
    for name in &names {
        cluster
            .until(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                name,
                "edge-own-v4",
                |o| !o["ports"].is_null(),
            )
            .await?;
    }
    cluster.quiet().await?;
    let writes = cluster.writes()?;
    for resource in ["services", "endpointslices"] {
        let refused: Vec<_> = writes
            .iter()
            .filter(|write| write.resource == resource && write.code == 409)
            .collect();
        assert!(refused.is_empty(), "{refused:#?}");
        let created = writes
            .iter()
            .filter(|write| write.resource == resource && write.code == 201);
        assert_eq!(created.count(), GATEWAYS, "{resource} that were created");
    }
    Ok(())
}
