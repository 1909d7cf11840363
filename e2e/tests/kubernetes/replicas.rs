//! `Programmed` with several replicas: every Envoy counts, whichever replica it is connected to,
//! and nothing is written once all is reported.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::cluster::{ACCOUNT, Cluster, condition, is_true};
use e2e::port::free_port;
use serde_json::{Value, json};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

fn gateway(port: u16, hosts: &[&str]) -> Value {
    let listener = |(index, host): (usize, &&str)| json!({"name": format!("l{index}"), "protocol": "HTTP", "port": port, "hostname": host});
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "gatewright",
            "listeners": hosts.iter().enumerate().map(listener).collect::<Vec<_>>()}})
}

/// Waits until the Gateway has this message about its Envoys, of its current generation.
async fn until_told(cluster: &Cluster, text: &str) -> Result<Value> {
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            condition(&o["status"], "Programmed").is_some_and(|c| {
                c["message"] == text && c["observedGeneration"] == o["metadata"]["generation"]
            })
        })
        .await
}

/// Returns how often replicas wrote their records.
fn records(cluster: &Cluster) -> Result<usize> {
    let all = cluster.server.requests()?;
    let is_record = |name: &str| name.contains("/gatewright-replica-");
    Ok(all
        .iter()
        .filter(|r| r.user == ACCOUNT && r.verb == "patch" && is_record(&r.object))
        .count())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn the_envoys_of_every_replica_count() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster
        .server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let port = free_port()?;
    let mut one = cluster.controller("one")?;
    one.line("xDS at").await?;
    let (mut two, xds) = cluster.replica_with_xds("two")?;
    two.line("xDS at").await?;
    let (_a, _tls_a) = cluster.envoy("envoy-a").await?;
    let (b, _tls_b) = cluster.envoy_of("envoy-b", xds).await?;
    cluster
        .server
        .put(gateway(port, &["a.example.org"]))
        .await?;
    until_told(&cluster, "acknowledged by 2 of 2 Envoys").await?;

    // The next change waits for both again, and is reported once both have it.
    cluster
        .server
        .put(gateway(port, &["a.example.org", "b.example.org"]))
        .await?;
    let gateway_now = until_told(&cluster, "acknowledged by 2 of 2 Envoys").await?;
    assert!(is_true(&gateway_now["status"], "Programmed"));

    // Then nothing is written, neither statuses nor records.
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut before = 0;
    while records(&cluster)? != before {
        before = records(&cluster)?;
        assert!(Instant::now() < deadline, "{before} records, and no end");
        cluster.quiet().await?;
    }
    assert!(before > 0 && before < 20, "{before} records were written");

    // A disconnected Envoy does not count any more.
    drop(b);
    until_told(&cluster, "acknowledged by 1 of 1 Envoys").await?;
    let (_b, _tls_b) = cluster.envoy_of("envoy-b", xds).await?;
    until_told(&cluster, "acknowledged by 2 of 2 Envoys").await?;

    // A replica is killed: its Envoy serves its last configuration and gets no changes, and the
    // status says so.
    drop(two);
    cluster
        .server
        .put(gateway(port, &["a.example.org", "c.example.org"]))
        .await?;
    let behind = until_told(
        &cluster,
        "acknowledged by 1 of 2 Envoys, not yet by envoy-b",
    )
    .await?;
    assert!(!is_true(&behind["status"], "Programmed"), "{behind:#}");
    // The other Envoy has the change: the silent one is not waited for without end.
    let silent = "acknowledged by 1 of 2 Envoys; envoy-b lacks for long what others have, and is not waited for";
    let gone_on = until_told(&cluster, silent).await?;
    assert!(is_true(&gone_on["status"], "Programmed"), "{gone_on:#}");
    // Its record is removed with its pod.
    let leases = cluster
        .server
        .api("coordination.k8s.io/v1", "Lease", "gatewright-system")
        .await?;
    leases
        .delete("gatewright-replica-two", &Default::default())
        .await?;
    until_told(&cluster, "acknowledged by 1 of 1 Envoys").await?;

    // The next lease holder knows its own Envoys, and those in the other replica's record.
    let (mut two, _) = cluster.replica_with_xds("two")?;
    two.line("xDS at").await?;
    drop(one);
    two.line("holding the lease").await?;
    let mut one = cluster.controller("one")?;
    one.line("xDS at").await?;
    let told = until_told(&cluster, "acknowledged by 1 of 1 Envoys").await?;
    assert!(
        is_true(&told["status"], "Programmed"),
        "{}",
        condition(&told["status"], "Programmed").context("it has one")?
    );
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
