//! The official conformance suite of the Gateway API, on the chart as it is: a class of the
//! dedicated fleet, whose Gateways have an address of the load balancer each.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::conformance::{Outcome, Run};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::cluster::{
    LIMIT, NAMESPACE, kubectl, objects, rolled_out, root, run, shop, until_served,
};

const CLASS: &str = "gatewright-conformance";

/// The last address of the load balancer, which it gives to nobody who does not ask for it.
fn usable() -> Result<Ipv4Addr> {
    let set = objects(&["daemonset", "load-balancer", "-n", "kube-system"])?
        .pop()
        .context("the load balancer")?;
    let environment = set
        .pointer("/spec/template/spec/containers/0/env")
        .and_then(Value::as_array);
    let range = environment
        .into_iter()
        .flatten()
        .find(|variable| variable["name"] == "LOAD_BALANCER_RANGE");
    let (_, last) = range
        .and_then(|range| range["value"].as_str()?.split_once('-'))
        .context("its range")?;
    Ok(last.parse()?)
}

/// Waits until the class tells its features, which the suite takes.
async fn class() -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let class = objects(&["gatewayclass", CLASS])?
            .pop()
            .context("the class")?;
        if class["status"]["supportedFeatures"]
            .as_array()
            .is_some_and(|features| !features.is_empty())
        {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the class tells no features: {}",
            class["status"]
        );
        sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
#[allow(
    clippy::print_stderr,
    reason = "a run of minutes says how it goes, to who asked for it"
)]
async fn every_test_of_what_is_claimed_passes() -> Result<()> {
    run(
        &root().join("kind/conformance-image").display().to_string(),
        &[],
    )?;
    let chart = root().join("deploy/chart").display().to_string();
    let class_of = format!("gatewayClasses.{CLASS}.parameters.fleet=Dedicated");
    run(
        "helm",
        &[
            "upgrade",
            "gatewright",
            &chart,
            "-n",
            NAMESPACE,
            "--reuse-values",
            "--set",
            &class_of,
            "--wait",
            "--timeout=5m",
        ],
    )?;
    rolled_out("deployment/gatewright-envoy-dedicated")?;
    class().await?;

    let kubeconfig = root().join(".tools/kind-state/kubeconfig");
    let dir = tempfile::tempdir()?;
    let (usable, report) = (usable()?, dir.path().join("report.yaml"));
    let test = std::env::var("CONFORMANCE_TEST")
        .ok()
        .filter(|test| !test.is_empty());
    let one = test.is_some();
    let said = tokio::task::spawn_blocking(move || {
        let run = Run {
            kubeconfig: &kubeconfig,
            class: CLASS,
            usable,
            report: &report,
            test,
        };
        run.run(|line, outcome| {
            if outcome != Outcome::Skipped {
                eprintln!("{line}");
            }
        })
    });
    let said = said.await??;

    // The suite leaves its namespaces.
    let namespaces = objects(&["namespaces"])?;
    let namespaces = namespaces
        .iter()
        .filter_map(|namespace| namespace["metadata"]["name"].as_str());
    let theirs: Vec<&str> = namespaces
        .filter(|name| name.starts_with("gateway-conformance-"))
        .collect();
    kubectl(&[&["delete", "namespaces", "--timeout=3m"], theirs.as_slice()].concat())?;
    run(
        "helm",
        &[
            "rollback",
            "gatewright",
            "-n",
            NAMESPACE,
            "--wait",
            "--timeout=5m",
        ],
    )?;
    until_served(&shop()?).await?;
    said.none_failed()?;
    if one {
        Ok(())
    } else {
        said.skipped_as_listed()
    }
}
