//! Gateways that stand on Services which they name: ports, conflicts, and changes of these
//! Services.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cluster::{BACKEND, Cluster, condition, is_true, service};
use e2e::echo::Echo;
use kube::api::{Patch, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::{GATEWAY, answer, change, dedicated, gateway, give, parameters, tenant, told};

const SLICE: &str = "discovery.k8s.io/v1";
const LIMIT: Duration = Duration::from_secs(180);
/// Ports of the Envoys on this machine that no other test uses.
const TARGETS: [u16; 4] = [28_411, 28_412, 28_413, 28_414];

/// A Service of a user, with ports and their target ports.
fn front(namespace: &str, ports: &[(u16, u16)]) -> Value {
    let port = |(port, target): &(u16, u16)| json!({"name": format!("p{port}"), "port": port, "targetPort": target});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front", "namespace": namespace},
        "spec": {"type": "LoadBalancer", "ports": ports.iter().map(port).collect::<Vec<_>>()}})
}

/// Makes one, with an address.
async fn make(cluster: &Cluster, namespace: &str, ports: &[(u16, u16)]) -> Result<()> {
    let services = cluster.server.api("v1", "Service", namespace).await?;
    services
        .create(
            &PostParams::default(),
            &serde_json::from_value(front(namespace, ports))?,
        )
        .await?;
    give(cluster, namespace, "front", BACKEND).await
}

/// Changes the target ports of its ports.
async fn lead(cluster: &Cluster, namespace: &str, ports: &[(u16, u16)]) -> Result<()> {
    let services = cluster.server.api("v1", "Service", namespace).await?;
    let patch = Patch::Merge(json!({"spec": {"ports": front(namespace, ports)["spec"]["ports"]}}));
    services.patch("front", &Default::default(), &patch).await?;
    Ok(())
}

fn named(namespace: &str) -> Value {
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"name": "front", "namespace": namespace}, "spec": {"service": {"name": "front"}}})
}

fn infrastructure() -> Value {
    json!({"parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters", "name": "front"}})
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Waits until a backend answers for a host at a port of the Envoy.
async fn until_answered(port: u16, host: &str, by: &str) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while answer(at(port), host).await.ok().as_deref() != Some(by) {
        ensure!(
            Instant::now() < deadline,
            "{host} is not answered by {by} at port {port}"
        );
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Waits until Envoy does not listen on a port any more.
async fn until_closed(port: u16) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while TcpStream::connect(at(port)).await.is_ok() {
        ensure!(Instant::now() < deadline, "port {port} is open");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn gateways_stand_on_services_that_they_name() -> Result<()> {
    const HOST: &str = "web.example.org";
    let [first, second, third, fourth] = TARGETS;
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    dedicated(&cluster).await?;
    let nora = Echo::start_on("nora", BACKEND).await?;
    let nils = Echo::start_on("nils", BACKEND).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    for (name, echo) in [("nora", &nora), ("nils", &nils)] {
        tenant(&cluster, name, "own", 443, &[HOST]).await?;
        for object in service(name, "web", echo.address().port()) {
            server.put(object).await?;
        }
        cluster
            .until("v1", "Service", name, "edge-own", Value::is_object)
            .await?;
        server.put(named(name)).await?;
        make(&cluster, name, &[(443, first)]).await?;
    }

    // The class does not allow it: the existing Service stays.
    change(
        &cluster,
        "nora",
        json!({"spec": {"infrastructure": infrastructure()}}),
    )
    .await?;
    let edge = cluster
        .until(GATEWAY, "Gateway", "nora", "edge", |o| {
            told(&o["status"], "Accepted").0 == "InvalidParameters"
        })
        .await?;
    let (_, text) = told(&edge["status"], "Accepted");
    assert!(
        text.contains("set spec.namedServices to Allow in the GatewayParameters of the class"),
        "{text}"
    );
    assert!(
        server
            .api("v1", "Service", "nora")
            .await?
            .get_opt("edge-own")
            .await?
            .is_some()
    );

    // The class allows it: Nora's host is served at the target port of her Service, and the derived
    // Service is deleted.
    server
        .put(parameters(
            "own",
            json!({"fleet": "Dedicated", "namedServices": "Allow"}),
        ))
        .await?;
    let programmed = |o: &Value| is_true(&o["status"], "Programmed");
    let edge = cluster
        .until(GATEWAY, "Gateway", "nora", "edge", programmed)
        .await?;
    assert_eq!(
        edge["status"]["addresses"],
        json!([{"type": "IPAddress", "value": BACKEND}])
    );
    assert_eq!(answer(at(first), HOST).await?, "nora");
    let slice = cluster
        .until(
            SLICE,
            "EndpointSlice",
            "nora",
            "edge-front-v4",
            Value::is_object,
        )
        .await?;
    assert_eq!(
        slice["ports"],
        json!([{"name": "p443", "port": first, "protocol": "TCP"}])
    );
    assert_eq!(slice["endpoints"][0]["addresses"], json!([BACKEND]));
    cluster
        .until("v1", "Service", "nora", "edge-own", Value::is_null)
        .await?;
    cluster
        .until(
            SLICE,
            "EndpointSlice",
            "nora",
            "edge-own-v4",
            Value::is_null,
        )
        .await?;

    // Nils's Service has the same target port: no request of his reaches Nora's routes, and his
    // status does not name her.
    change(
        &cluster,
        "nils",
        json!({"spec": {"infrastructure": infrastructure()}}),
    )
    .await?;
    let taken = |o: &Value| told(&o["status"]["listeners"][0], "Accepted").0 == "PortUnavailable";
    let edge = cluster
        .until(GATEWAY, "Gateway", "nils", "edge", taken)
        .await?;
    let (_, text) = told(&edge["status"]["listeners"][0], "Accepted");
    let expected = format!(
        "port 443 of Service nils/front leads to port {first} of Envoys, which a Gateway of another namespace has"
    );
    assert!(
        text.starts_with(&expected) && !text.contains("nora"),
        "{text}"
    );
    cluster
        .until("v1", "Service", "nils", "edge-own", Value::is_null)
        .await?;
    let slices = server.api(SLICE, "EndpointSlice", "nils").await?;
    assert!(
        slices.get_opt("edge-front-v4").await?.is_none(),
        "nothing leads there"
    );
    assert_eq!(answer(at(first), HOST).await?, "nora");
    lead(&cluster, "nils", &[(443, second)]).await?;
    cluster
        .until(GATEWAY, "Gateway", "nils", "edge", programmed)
        .await?;
    assert_eq!(
        answer(at(first), HOST).await?,
        "nora",
        "the first Service leads to its Gateway"
    );
    assert_eq!(
        answer(at(second), HOST).await?,
        "nils",
        "the second one to its own"
    );

    // A second Gateway of Nora's on the same Service: on a port of its own it is served, on the
    // first one's it is not.
    lead(&cluster, "nora", &[(443, first), (8443, third)]).await?;
    let mut more = gateway("nora", "own", 8443, &[HOST]);
    more["metadata"]["name"] = json!("more");
    more["spec"]["infrastructure"] = infrastructure();
    server.put(more.clone()).await?;
    cluster
        .until(GATEWAY, "Gateway", "nora", "more", programmed)
        .await?;
    // It has no route.
    let gateways = server.api(GATEWAY, "Gateway", "nora").await?;
    let both = json!({"spec": {"parentRefs": [{"name": "edge"}, {"name": "more"}]}});
    server
        .api(GATEWAY, "HTTPRoute", "nora")
        .await?
        .patch("web", &Default::default(), &Patch::Merge(&both))
        .await?;
    until_answered(third, HOST, "nora").await?;
    more["spec"]["listeners"][0]["port"] = json!(443);
    server.put(more).await?;
    let edge = cluster
        .until(GATEWAY, "Gateway", "nora", "more", taken)
        .await?;
    let (_, text) = told(&edge["status"]["listeners"][0], "Accepted");
    assert!(
        text.contains("which Gateway nora/edge has: give it another targetPort"),
        "{text}"
    );
    until_closed(third).await?;
    assert_eq!(
        answer(at(first), HOST).await?,
        "nora",
        "the first one is served on"
    );
    gateways.delete("more", &Default::default()).await?;

    // The target port changes.
    lead(&cluster, "nora", &[(443, fourth)]).await?;
    until_answered(fourth, HOST, "nora").await?;
    until_closed(first).await?;
    cluster
        .until(SLICE, "EndpointSlice", "nora", "edge-front-v4", |o| {
            o["ports"][0]["port"] == fourth
        })
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "nora", "edge", programmed)
        .await?;

    // A restart keeps all of it and writes nothing; the users' Services were never written at all.
    let quiet = cluster.quiet().await?;
    drop(controller);
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    cluster.quiet().await?;
    assert_eq!(cluster.writes()?[quiet..], []);
    assert_eq!(answer(at(fourth), HOST).await?, "nora");
    for namespace in ["nora", "nils"] {
        let there = serde_json::to_value(
            server
                .api("v1", "Service", namespace)
                .await?
                .get("front")
                .await?,
        )?;
        let managers = there["metadata"]["managedFields"].to_string();
        assert!(!managers.contains("gatewright"), "{managers}");
    }

    // The Service is deleted, and made again. Nils's host stays served.
    server
        .api("v1", "Service", "nora")
        .await?
        .delete("front", &Default::default())
        .await?;
    let edge = cluster
        .until(GATEWAY, "Gateway", "nora", "edge", |o| {
            told(&o["status"], "Programmed")
                .1
                .starts_with("Service nora/front is not there: create it")
        })
        .await?;
    assert_eq!(told(&edge["status"], "Programmed").0, "AddressNotAssigned");
    assert!(
        edge["status"]["addresses"]
            .as_array()
            .is_none_or(Vec::is_empty)
    );
    until_closed(fourth).await?;
    cluster
        .until(
            SLICE,
            "EndpointSlice",
            "nora",
            "edge-front-v4",
            Value::is_null,
        )
        .await?;
    assert_eq!(answer(at(second), HOST).await?, "nils");
    make(&cluster, "nora", &[(443, fourth)]).await?;
    cluster
        .until(GATEWAY, "Gateway", "nora", "edge", programmed)
        .await?;
    until_answered(fourth, HOST, "nora").await?;

    // A Service with a selector is refused with a reason: it leads to arbitrary pods.
    let selector = Patch::Merge(json!({"spec": {"selector": {"app": "nora"}}}));
    server
        .api("v1", "Service", "nora")
        .await?
        .patch("front", &Default::default(), &selector)
        .await?;
    let edge = cluster
        .until(GATEWAY, "Gateway", "nora", "edge", |o| {
            condition(&o["status"], "Programmed").is_some_and(|c| c["reason"] == "AddressNotUsable")
        })
        .await?;
    let (_, text) = told(&edge["status"], "Programmed");
    assert!(text.contains("Service nora/front has a selector"), "{text}");
    until_closed(fourth).await?;
    assert_eq!(answer(at(second), HOST).await?, "nils");
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
