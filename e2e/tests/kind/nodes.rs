//! Nodes that are lost, and drained.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};

use super::cluster::{
    LATE, LIMIT, NAMESPACE, at, holder, kubectl, kubectl_of, late, objects, rolled_out, run, shop,
    until_served,
};
use super::traffic::Traffic;

/// The node of the Lease's holder is silent, with all that runs on it: another replica takes over,
/// and writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn a_node_that_is_lost_takes_the_lease_along_for_a_moment() -> Result<()> {
    if objects(&["nodes", "-l", "!node-role.kubernetes.io/control-plane"])?.len() < 2 {
        println!("there is no second node: none is lost");
        return Ok(());
    }
    let before = holder()?;
    let pod = objects(&["pod", &before, "-n", NAMESPACE])?
        .pop()
        .context("its pod")?;
    let node = pod["spec"]["nodeName"].as_str().context("its node")?;
    let route = late();
    run("docker", &["pause", node])?;
    let others = async {
        let deadline = Instant::now() + LIMIT;
        while holder()? == before {
            ensure!(Instant::now() < deadline, "nobody else holds the Lease");
            sleep(Duration::from_millis(500)).await;
        }
        kubectl_of(&["apply"], &route)?;
        loop {
            let route = objects(&["httproute", "late", "-n", "tenant-alice"])?
                .pop()
                .context("the route")?;
            if route["status"]["parents"]
                .to_string()
                .contains("gatewright.io/gateway-controller")
            {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "nobody writes its status: {}",
                route["status"]
            );
            sleep(Duration::from_millis(500)).await;
        }
    };
    let others = others.await;
    run("docker", &["unpause", node])?;
    others?;
    kubectl(&[
        "wait",
        "--for=condition=Ready",
        &format!("node/{node}"),
        "--timeout=3m",
    ])?;
    rolled_out("deployment/gatewright-controller")?;
    rolled_out("daemonset/gatewright-envoy")?;
    until_served(&at(LATE)?).await?;
    kubectl_of(&["delete"], &route)?;
    until_served(&shop()?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn the_drain_of_the_lease_holders_node_loses_no_request() -> Result<()> {
    let workers = objects(&["nodes", "-l", "!node-role.kubernetes.io/control-plane"])?;
    if workers.len() < 2 {
        println!("there is no second node: nothing is drained");
        return Ok(());
    }
    let before = holder()?;
    let pod = objects(&["pod", &before, "-n", NAMESPACE])?
        .pop()
        .context("its pod")?;
    let node = pod["spec"]["nodeName"].as_str().context("its node")?;
    let probe = shop()?;
    until_served(&probe).await?;
    let traffic = Traffic::start(&probe);
    let drained = kubectl(&[
        "drain",
        node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--timeout=5m",
    ]);
    let deadline = Instant::now() + LIMIT;
    while drained.is_ok() && holder()? == before {
        ensure!(Instant::now() < deadline, "nobody else holds the Lease");
        sleep(Duration::from_millis(500)).await;
    }
    kubectl(&["uncordon", node])?;
    drained?;
    rolled_out("deployment/gatewright-controller")?;
    traffic.none_failed(100).await
}
