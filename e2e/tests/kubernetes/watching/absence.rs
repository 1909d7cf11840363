//! A starting API server serves its kinds one after the other, and a failing one may lack some for
//! a moment: that is no evidence about the objects.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use e2e::apiserver::proxy::Proxy;
use e2e::cluster::{ACCOUNT, Cluster, condition};
use serde_json::json;
use tokio::time::sleep;

use super::dedicated::put_gateway;
use e2e::tenants::{
    CERT_MANAGER, GATEWAY, TENANT, cluster, namespace, owned, program, quiet, route, tenant, until,
    until_ready,
};

const GROUPS: [&str; 3] = [
    "gateway.networking.k8s.io",
    "cert-manager.io",
    "gateway.cozystack.io",
];

/// Makes a TenantGateway with a host, and a Gateway of the dedicated fleet, with all their derived
/// objects.
async fn settled() -> Result<Cluster> {
    let cluster = cluster().await?;
    let server = &cluster.server;
    put_gateway(server).await?;
    let mut controller = cluster.controller("before")?;
    controller.line("holding the lease").await?;
    namespace(server, "tenant-a", "a.example.org").await?;
    server
        .put(tenant("tenant-a", json!({"apex": "a.example.org"})))
        .await?;
    server
        .put(route("tenant-a", "web", "tenant-a", &["web.a.example.org"]))
        .await?;
    until("the tenant has all", async || {
        Ok(owned(server, "tenant-a").await?.len() == 4)
    })
    .await?;
    quiet(&cluster, 0).await?;
    program(server, "Gateway", "tenant-a", "cozystack").await?;
    until_ready(&cluster, "tenant-a", "Reconciled").await?;
    until("the Gateway has a Service", async || {
        Ok(services(&cluster).await? == 1)
    })
    .await?;
    // No Envoy connects, which is reported after a while.
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            condition(&o["status"], "Programmed").is_some_and(|c| c["status"] == "False")
        })
        .await?;
    quiet(&cluster, 0).await?;
    Ok(cluster)
}

/// Returns the number of Gateways' Services.
async fn services(cluster: &Cluster) -> Result<usize> {
    let all = cluster
        .server
        .api("v1", "Service", "default")
        .await?
        .list(&Default::default())
        .await?;
    Ok(all
        .iter()
        .filter(|s| {
            s.metadata
                .labels
                .as_ref()
                .is_some_and(|l| l.values().any(|v| v == "edge"))
        })
        .count())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn kinds_that_a_starting_server_lacks_are_awaited() -> Result<()> {
    let cluster = settled().await?;
    let before = cluster.writes()?.len();
    let proxy = Proxy::start(&cluster.server, ACCOUNT).await?;
    proxy.weather.unready.store(true, Ordering::Relaxed);
    proxy.weather.hide(&GROUPS, usize::MAX);
    let mut controller = cluster.replica_through("after", &proxy)?;
    controller.line("Namespace: watched").await?;
    controller.line("holding the lease").await?;
    sleep(Duration::from_secs(5)).await;
    assert!(
        !controller.output().contains("the view is complete"),
        "{}",
        controller.output()
    );
    assert!(
        !controller.output().contains("not served by"),
        "{}",
        controller.output()
    );

    // The first answer of a server that reports itself ready lacks them as well.
    proxy.weather.hide(&GROUPS, 1);
    proxy.weather.unready.store(false, Ordering::Relaxed);
    controller.line("the view is complete").await?;
    assert!(
        !controller.output().contains("not served by"),
        "{}",
        controller.output()
    );
    sleep(Duration::from_secs(4)).await;
    assert_eq!(cluster.writes()?[before..], [], "all was as it should be");
    assert_eq!(services(&cluster).await?, 1);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn kinds_missing_for_a_moment_are_not_deleted_and_those_missing_for_long_are_reported()
-> Result<()> {
    let cluster = settled().await?;
    let before = cluster.writes()?.len();
    let proxy = Proxy::start(&cluster.server, ACCOUNT).await?;
    let mut controller = cluster.replica_through("after", &proxy)?;
    controller.line("the view is complete").await?;
    controller.line("holding the lease").await?;

    proxy.weather.hide(&GROUPS, 3);
    until("it was asked three times", async || {
        Ok(proxy.weather.hidden_for.load(Ordering::Relaxed) == 0)
    })
    .await?;
    sleep(Duration::from_secs(3)).await;
    assert!(
        !controller.output().contains("not served by"),
        "{}",
        controller.output()
    );
    assert_eq!(
        cluster.writes()?[before..],
        [],
        "nothing is said, and nothing is taken back"
    );

    // Now they are missing for longer. Nothing that depends on them is deleted either.
    proxy.weather.hide(
        &["gateway.networking.k8s.io", "cert-manager.io"],
        usize::MAX,
    );
    controller
        .line("Gateway: not served by this API server")
        .await?;
    controller
        .line("Certificate: not served by this API server")
        .await?;
    sleep(Duration::from_secs(2)).await;
    let deleted = |since: usize| {
        let all = cluster.writes()?;
        anyhow::Ok(
            all[since..]
                .iter()
                .filter(|r| r.verb.starts_with("delete"))
                .count(),
        )
    };
    assert_eq!(deleted(before)?, 0);
    assert_eq!(services(&cluster).await?, 1);
    proxy.weather.hide(&[], 0);
    until("they are watched again", async || {
        let log = controller.output();
        let last = |text: &str| log.rfind(text);
        Ok(["Gateway", "Certificate"].iter().all(|kind| {
            last(&format!(" {kind}: watched")) > last(&format!(" {kind}: not served by"))
        }))
    })
    .await?;
    until_ready(&cluster, "tenant-a", "Reconciled").await?;
    assert_eq!(deleted(before)?, 0);
    for (version, kind, name) in [
        (GATEWAY, "Gateway", "cozystack"),
        (CERT_MANAGER, "Issuer", "cozystack-gateway"),
        (TENANT, "TenantGateway", "cozystack"),
    ] {
        cluster
            .server
            .api(version, kind, "tenant-a")
            .await?
            .get(name)
            .await?;
    }
    Ok(())
}
