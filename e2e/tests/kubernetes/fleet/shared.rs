//! Gateways that share the addresses and ports of the Envoys.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use e2e::cluster::{BACKEND, Cluster, condition, is_true, service};
use e2e::echo::Echo;
use e2e::port::free_port;
use serde_json::json;

use super::{GATEWAY, answer, gateway, tenant};

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn gateways_of_the_shared_fleet_are_told_apart_by_hostnames() -> Result<()> {
    let cluster = Cluster::start().await?;
    let alice = Echo::start_on("alice", BACKEND).await?;
    let bob = Echo::start_on("bob", BACKEND).await?;
    // A name that one gives up is the next one's at once.
    let mut controller =
        cluster.controller_with("one", &["--set", "tenancy.hostnameHoldHours=0"])?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    cluster
        .server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let port = free_port()?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    for (name, echo, own) in [
        ("alice", &alice, "a.example.org"),
        ("bob", &bob, "b.example.org"),
    ] {
        tenant(
            &cluster,
            name,
            "gatewright",
            port,
            &[own, "both.example.org"],
        )
        .await?;
        for object in service(name, "web", echo.address().port()) {
            cluster.server.put(object).await?;
        }
        // The next Gateway is younger by its creation time, which has a resolution of a second.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    }
    let bobs = cluster
        .until(GATEWAY, "Gateway", "bob", "edge", |o| {
            is_true(&o["status"], "Programmed")
                && is_true(&o["status"]["listeners"][1], "Conflicted")
        })
        .await?;
    let lost = condition(&bobs["status"]["listeners"][1], "Accepted").context("it has one")?;
    assert_eq!(lost["status"], json!("False"), "the loser is not accepted");
    assert_eq!(
        lost["reason"],
        json!("HostnameConflict"),
        "because of the hostname"
    );
    assert!(
        !lost["message"].to_string().contains("alice"),
        "nothing of another tenant is told: {lost}"
    );
    let alices = cluster
        .until(GATEWAY, "Gateway", "alice", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    assert_eq!(
        alices["status"]["addresses"], bobs["status"]["addresses"],
        "they share the addresses"
    );
    cluster
        .until(GATEWAY, "Gateway", "alice", "edge", |o| {
            is_true(&o["status"]["listeners"][1], "Programmed")
        })
        .await?;
    for (host, owner) in [
        ("a.example.org", "alice"),
        ("b.example.org", "bob"),
        ("both.example.org", "alice"),
    ] {
        assert_eq!(answer(address, host).await?, owner, "{host}");
    }

    // The name is free again: the other Gateway gets it, and nothing else changed.
    cluster
        .server
        .put(gateway("alice", "gatewright", port, &["a.example.org"]))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "bob", "edge", |o| {
            is_true(&o["status"]["listeners"][1], "Programmed")
        })
        .await?;
    for (host, owner) in [
        ("a.example.org", "alice"),
        ("b.example.org", "bob"),
        ("both.example.org", "bob"),
    ] {
        assert_eq!(answer(address, host).await?, owner, "{host}");
    }
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
