//! Pods that are replaced, and evicted, while clients ask.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::cluster::{NAMESPACE, kubectl, kubectl_of, objects, rolled_out, shop, until_served};
use super::traffic::Traffic;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn rollouts_lose_no_request() -> Result<()> {
    let probe = shop()?;
    until_served(&probe).await?;
    let traffic = Traffic::start(&probe);
    for what in [
        "deployment/gatewright-controller",
        "daemonset/gatewright-envoy",
    ] {
        kubectl(&["-n", NAMESPACE, "rollout", "restart", what])?;
        rolled_out(what)?;
    }
    // Both replicas of the control plane at once: Envoys serve on.
    kubectl(&[
        "-n",
        NAMESPACE,
        "delete",
        "pods",
        "-l",
        "app.kubernetes.io/component=controller",
        "--force",
        "--grace-period=0",
    ])?;
    rolled_out("deployment/gatewright-controller")?;
    traffic.none_failed(200).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn the_last_replica_is_not_evicted() -> Result<()> {
    rolled_out("deployment/gatewright-controller")?;
    let probe = shop()?;
    until_served(&probe).await?;
    let traffic = Traffic::start(&probe);
    let pods = objects(&[
        "pods",
        "-n",
        NAMESPACE,
        "-l",
        "app.kubernetes.io/component=controller",
    ])?;
    ensure!(pods.len() == 2, "{} replicas", pods.len());
    let mut answers = Vec::new();
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().context("a name")?;
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": name, "namespace": NAMESPACE}});
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction");
        answers.push(kubectl_of(&["create", "--raw", &path], &eviction));
    }
    let [first, second] = answers.as_slice() else {
        unreachable!("two replicas")
    };
    ensure!(first.is_ok(), "{first:?}");
    let refused = format!(
        "{:#}",
        second
            .as_ref()
            .err()
            .context("both replicas were evicted")?
    );
    ensure!(refused.contains("disruption budget"), "{refused}");
    rolled_out("deployment/gatewright-controller")?;
    traffic.none_failed(20).await
}
