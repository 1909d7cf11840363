//! Pods of the chart as they are deployed, and the commands in them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::cluster::{
    HOST, LATE, LIMIT, NAMESPACE, at, container, envoys, gatewright, gatewright_in, holder,
    kubectl, kubectl_of, late, objects, rolled_out, root, run, shop, until_served,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn pods_are_restricted_and_the_cli_works_in_them() -> Result<()> {
    let namespace = objects(&["namespace", NAMESPACE])?
        .pop()
        .context("a namespace")?;
    assert_eq!(
        namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"],
        "restricted"
    );
    for what in [
        "deployment/gatewright-controller",
        "daemonset/gatewright-envoy",
    ] {
        kubectl(&["-n", NAMESPACE, "rollout", "restart", what])?;
        rolled_out(what)?;
    }
    let pods = objects(&["pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component"])?;
    let pods: Vec<_> = pods
        .into_iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .collect();
    assert!(pods.len() >= 3, "{} pods", pods.len());
    for pod in &pods {
        let restarts = pod["status"]["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten();
        let restarts: u64 = restarts
            .filter_map(|container| container["restartCount"].as_u64())
            .sum();
        assert_eq!(
            pod["status"]["phase"].as_str(),
            Some("Running"),
            "{}",
            pod["metadata"]["name"]
        );
        assert_eq!(restarts, 0, "{}", pod["metadata"]["name"]);
    }
    let refused = kubectl(&[
        "-n",
        NAMESPACE,
        "run",
        "open",
        "--image=gatewright:0",
        "--privileged",
    ])
    .expect_err("not here");
    assert!(
        format!("{refused:#}").contains("violates PodSecurity"),
        "{refused:#}"
    );

    until_served(&shop()?).await?;
    let told = gatewright(&["status"])?;
    assert!(
        told.contains("tenantgateway tenant-alice/gateway")
            && told.contains("httproute tenant-bob/shop"),
        "{told}"
    );
    let foreign = root()
        .join("kind/manifests/not-his.yaml")
        .display()
        .to_string();
    let refused = kubectl(&["apply", "-f", &foreign]).expect_err("it is alice's name");
    assert!(
        format!("{refused:#}").contains("must equal bob.example.org"),
        "{refused:#}"
    );
    // In any replica, whether an Envoy is connected to it or not.
    let url = format!("https://{HOST}/");
    let told = gatewright(&["explain", &url])?;
    assert!(!told.contains("FAILS"), "{told}");
    let told = gatewright(&["claims"])?;
    assert!(told.contains(HOST), "{told}");
    // The Envoys of all replicas, and certificates, are with the holder of the Lease.
    let holder = format!("pod/{}", holder()?);
    let told = gatewright_in(&holder, &["explain", &url])?;
    assert!(told.contains("acknowledged by "), "{told}");
    let told = gatewright_in(&holder, &["certs"])?;
    assert!(told.contains(HOST), "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn alerts_speak_of_metrics_that_there_are() -> Result<()> {
    until_served(&shop()?).await?;
    let chart = root().join("deploy/chart").display().to_string();
    let enabled = "monitoring.prometheusRule.enabled=true";
    let rules = run(
        "helm",
        &[
            "template",
            "g",
            &chart,
            "--set",
            enabled,
            "--set",
            "image.repository=gatewright",
            "--show-only",
            "templates/monitoring.yaml",
        ],
    )?;
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics: BTreeSet<&str> = words
        .filter(|word| word.starts_with("gatewright_"))
        .collect();
    assert!(metrics.len() >= 6, "{metrics:?}");
    // Those of certificates exist once a replica holds the Lease.
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut text = String::new();
        for pod in objects(&[
            "pods",
            "-n",
            NAMESPACE,
            "-l",
            "app.kubernetes.io/component=controller",
        ])? {
            let name = pod["metadata"]["name"].as_str().context("a name")?;
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}:8080/proxy/metrics");
            text += &kubectl(&["get", "--raw", &path])?;
        }
        let family = |metric: &str| {
            format!(
                "# TYPE {} ",
                metric.strip_suffix("_total").unwrap_or(metric)
            )
        };
        let missing: Vec<&&str> = metrics
            .iter()
            .filter(|metric| !text.contains(&family(metric)))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "no metrics are called {missing:?}:\n{text}"
        );
        sleep(Duration::from_secs(1)).await;
    }
}

/// In a node: leaves the container with this ID 32 MiB of memory more than it has, takes more than
/// that within it, and has the kernel end its own processes first.
const TAKE_MEMORY: &str = r#"
for group in $(find /sys/fs/cgroup -type d -name "*$1*"); do
    if [ -e "$group/memory.max" ]; then limit=memory.max used=memory.current
    elif [ -e "$group/memory.limit_in_bytes" ]; then limit=memory.limit_in_bytes used=memory.usage_in_bytes
    else continue
    fi
    for process in $(cat "$group/cgroup.procs"); do echo 1000 >"/proc/$process/oom_score_adj"; done
    echo $(($(cat "$group/$used") + (32 << 20))) >"$group/$limit"
    sh -c 'echo $$ >"$1/cgroup.procs"; exec timeout 60 tail /dev/zero' sh "$group" || true
    exit 0
done
echo "no cgroup of $1 limits memory" >&2
exit 1
"#;

/// The kernel ends an Envoy for its memory (OOM): the kubelet starts it again, and it serves what
/// it served, and what is new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn an_envoy_that_the_kernel_ends_for_its_memory_serves_again() -> Result<()> {
    rolled_out("daemonset/gatewright-envoy")?;
    until_served(&shop()?).await?;
    let before = envoys()?;
    let (pod, others) = before.split_first().context("an Envoy")?;
    let name = &pod["metadata"]["name"];
    let node = pod["spec"]["nodeName"].as_str().context("its node")?;
    let id = container(pod)?["containerID"]
        .as_str()
        .and_then(|id| id.rsplit('/').next())
        .context("its ID")?;
    run("docker", &["exec", node, "sh", "-c", TAKE_MEMORY, "sh", id])?;
    let deadline = Instant::now() + LIMIT;
    loop {
        let all = envoys()?;
        let now = container(
            all.iter()
                .find(|now| now["metadata"]["name"] == *name)
                .context("its pod")?,
        )?;
        let ended = &now["lastState"]["terminated"];
        if now["ready"] == true
            && ended["containerID"]
                .as_str()
                .is_some_and(|ended| ended.ends_with(id))
        {
            ensure!(ended["reason"] == "OOMKilled", "{ended}");
            break;
        }
        ensure!(Instant::now() < deadline, "it does not serve again: {now}");
        sleep(Duration::from_millis(200)).await;
    }
    for other in others {
        let now = envoys()?
            .into_iter()
            .find(|now| now["metadata"]["uid"] == other["metadata"]["uid"]);
        let restarts =
            |pod: &Value| container(pod).map(|container| container["restartCount"].clone());
        assert_eq!(
            restarts(&now.context("another Envoy is gone")?)?,
            restarts(other)?
        );
    }
    kubectl_of(&["apply"], &late())?;
    for probe in [shop()?, at(LATE)?] {
        until_served(&probe).await?;
    }
    kubectl_of(&["delete"], &late())?;
    Ok(())
}
