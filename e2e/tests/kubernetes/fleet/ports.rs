//! Permitted ports of listeners: those of dedicated Gateways belong to these alone, and those of
//! the shared fleet are the ports of its Service.

use e2e::apiserver::Definitions;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use e2e::cluster::{BACKEND, Cluster, is_true, service};
use e2e::echo::Echo;
use e2e::port::free_port;
use kube::api::Patch;
use serde_json::{Value, json};

use super::{GATEWAY, answer, change, class, dedicated, give, parameters, target, tenant, told};
use crate::edge::until_answers;

/// A ListenerSet that adds a listener on a port to the namespace's Gateway.
fn listener_set(namespace: &str, port: u16) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "ListenerSet", "metadata": {"name": "more", "namespace": namespace},
        "spec": {"parentRef": {"name": "edge"}, "listeners": [{"name": "more", "protocol": "HTTPS", "port": port,
            "hostname": "web.example.org", "tls": {"certificateRefs": [{"name": "cert"}]}}]}})
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn nobody_takes_the_port_of_a_dedicated_gateway() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    dedicated(&cluster).await?;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let petra = Echo::start_on("petra", BACKEND).await?;
    let paul = Echo::start_on("paul", BACKEND).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    tenant(&cluster, "petra", "own", 443, &["web.example.org"]).await?;
    for object in service("petra", "web", petra.address().port()) {
        server.put(object).await?;
    }
    let made = cluster
        .until("v1", "Service", "petra", "edge-own", |o| {
            target(o).is_some()
        })
        .await?;
    give(&cluster, "petra", "edge-own", BACKEND).await?;
    cluster
        .until(GATEWAY, "Gateway", "petra", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    let port = target(&made).context("a port")?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(answer(address, "web.example.org").await?, "petra");

    // Paul's Gateway of the shared fleet, and a ListenerSet of it, request that port and the same
    // hostname.
    tenant(&cluster, "paul", "gatewright", port, &["web.example.org"]).await?;
    for object in service("paul", "web", paul.address().port()) {
        server.put(object).await?;
    }
    change(
        &cluster,
        "paul",
        json!({"spec": {"allowedListeners": {"namespaces": {"from": "Same"}}}}),
    )
    .await?;
    server.put(listener_set("paul", port)).await?;
    for kind in ["Gateway", "ListenerSet"] {
        let name = if kind == "Gateway" { "edge" } else { "more" };
        let refused =
            |o: &Value| told(&o["status"]["listeners"][0], "Accepted").0 == "PortUnavailable";
        let refused = cluster.until(GATEWAY, kind, "paul", name, refused).await?;
        let (_, text) = told(&refused["status"]["listeners"][0], "Accepted");
        assert!(
            text.contains("20000 to 29999") && !text.contains("petra"),
            "{text}"
        );
        assert!(!is_true(&refused["status"], "Programmed"), "{kind}");
    }
    for _ in 0..20 {
        assert_eq!(answer(address, "web.example.org").await?, "petra");
    }

    // Ruth has a dedicated one, and writes Petra's port into its Service: it is reverted, and
    // Petra's host stays served.
    tenant(&cluster, "ruth", "own", 443, &["web.example.org"]).await?;
    let own = cluster
        .until("v1", "Service", "ruth", "edge-own", |o| target(o).is_some())
        .await?;
    let services = server.api("v1", "Service", "ruth").await?;
    let stolen = json!({"spec": {"ports": [{"port": 443, "name": "p443", "targetPort": port, "protocol": "TCP"}]}});
    services
        .patch("edge-own", &Default::default(), &Patch::Merge(&stolen))
        .await?;
    for _ in 0..10 {
        assert_eq!(answer(address, "web.example.org").await?, "petra");
    }
    assert_ne!(target(&own), Some(port));
    cluster
        .until("v1", "Service", "ruth", "edge-own", |o| {
            target(o).is_some_and(|target| target != port)
        })
        .await?;
    assert_eq!(answer(address, "web.example.org").await?, "petra");
    let still = cluster
        .until("v1", "Service", "petra", "edge-own", |o| {
            target(o).is_some()
        })
        .await?;
    assert_eq!(target(&still), Some(port), "the older one keeps its port");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_port_that_the_service_of_the_envoys_lacks_is_told_until_it_is_added() -> Result<()> {
    let cluster = Cluster::start().await?.reached_by_its_service();
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let ports = |ports: &[u16]| {
        let ports: Vec<Value> = ports
            .iter()
            .map(|port| json!({"name": format!("p{port}"), "port": port}))
            .collect();
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "gatewright-envoy", "namespace": "gatewright-system"},
            "spec": {"type": "LoadBalancer", "ports": ports}})
    };
    let port = free_port()?;
    let more = free_port()?;
    server.put(ports(&[80, 443])).await?;
    give(&cluster, "gatewright-system", "gatewright-envoy", BACKEND).await?;
    let echo = Echo::start_on("web", BACKEND).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    tenant(&cluster, "alice", "gatewright", port, &["web.example.org"]).await?;
    for object in service("alice", "web", echo.address().port()) {
        server.put(object).await?;
    }
    change(
        &cluster,
        "alice",
        json!({"spec": {"allowedListeners": {"namespaces": {"from": "Same"}}}}),
    )
    .await?;
    server.put(listener_set("alice", more)).await?;
    let lacks = |port: u16| {
        (
            "Pending".to_owned(),
            format!(
                "Service gatewright-system/gatewright-envoy has no port {port}: add it, or use one that it has"
            ),
        )
    };
    for (kind, name, port) in [("Gateway", "edge", port), ("ListenerSet", "more", more)] {
        let said = |o: &Value| told(&o["status"], "Programmed") == lacks(port);
        let said = cluster.until(GATEWAY, kind, "alice", name, said).await?;
        assert_eq!(
            told(&said["status"]["listeners"][0], "Programmed"),
            lacks(port)
        );
    }

    server.put(ports(&[80, 443, port])).await?;
    cluster
        .until(GATEWAY, "Gateway", "alice", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    // Envoy acknowledges a listener before it has fetched its certificate and listens.
    let site = SocketAddr::from(([127, 0, 0, 1], port));
    until_answers(site, "web.example.org", 200).await?;
    assert_eq!(answer(site, "web.example.org").await?, "web");
    let set = cluster
        .until(GATEWAY, "ListenerSet", "alice", "more", |o| {
            o["status"].is_object()
        })
        .await?;
    assert_eq!(
        told(&set["status"], "Programmed"),
        lacks(more),
        "the other one is still missing"
    );
    server.put(ports(&[80, 443, port, more])).await?;
    cluster
        .until(GATEWAY, "ListenerSet", "alice", "more", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    // One is removed again.
    server.put(ports(&[80, 443, more])).await?;
    cluster
        .until(GATEWAY, "Gateway", "alice", "edge", |o| {
            told(&o["status"], "Programmed") == lacks(port)
        })
        .await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

/// The protocols of the shared fleet's ports are set by the class, not by the first Gateway.
#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_class_says_what_its_ports_speak() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server.install(Definitions::Ours).await?;
    let port = free_port()?;
    let free = free_port()?;
    let spec = json!({"fleet": "Shared", "ports": [{"port": port, "protocol": "TLS"}]});
    server.put(parameters("mine", spec)).await?;
    server
        .put(class("spoken", Some(("GatewayParameters", "mine"))))
        .await?;
    let echo = Echo::start_on("web", BACKEND).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;

    // Mallory comes first, and requests HTTP for it.
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mallory"}}))
        .await?;
    let plain = |port: u16| json!({"name": format!("p{port}"), "protocol": "HTTP", "port": port});
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "mallory"},
            "spec": {"gatewayClassName": "spoken", "listeners": [plain(port), plain(free)]}}))
        .await?;
    let reason = |o: &Value, at: usize| told(&o["status"]["listeners"][at], "Accepted").0;
    cluster
        .until(GATEWAY, "Gateway", "mallory", "edge", |o| {
            (reason(o, 0), reason(o, 1)) == ("UnsupportedProtocol".into(), "Accepted".into())
        })
        .await?;

    tenant(&cluster, "alice", "spoken", port, &["web.example.org"]).await?;
    for object in service("alice", "web", echo.address().port()) {
        server.put(object).await?;
    }
    cluster
        .until(GATEWAY, "Gateway", "alice", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    // A Gateway is programmed before the endpoints of a new Service are there.
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    until_answers(at, "web.example.org", 200).await?;
    assert_eq!(answer(at, "web.example.org").await?, "web");

    // A port that the class does not name any more keeps its current protocol.
    server
        .put(parameters("mine", json!({"fleet": "Shared"})))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "mallory", "edge", |o| {
            reason(o, 0) == "ProtocolConflict"
        })
        .await?;
    assert_eq!(answer(at, "web.example.org").await?, "web");
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
