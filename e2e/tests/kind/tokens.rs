//! Tokens of pods, replaced by a real kubelet.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::{
    LIMIT, NAMESPACE, envoys, kubectl, objects, rolled_out, run, shop, until_served,
};

/// In a node: the digest of the token of a pod, by the pod's UID. The link `token` is the pod's
/// user's, in a directory that all may write: root follows it no more than others
/// (`fs.protected_symlinks`).
const DIGEST: &str =
    r#"sha256sum "/var/lib/kubelet/pods/$1/volumes/kubernetes.io~projected/identity/..data/token""#;
/// Runs on a node: removes a pod's certificate, and kills the container with this ID, which gets
/// another one.
const FORGET: &str = r#"
find "/var/lib/kubelet/pods/$1/volumes/kubernetes.io~empty-dir/run/tls" -mindepth 1 -delete
for group in $(find /sys/fs/cgroup -type d -name "*$2*"); do
    for process in $(cat "$group/cgroup.procs"); do kill "$process"; done && exit 0
done
exit 1
"#;

/// The kubelet replaces the token of a pod when a fifth of its lifetime is left: with the new one,
/// Envoy's pod gets its next certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn a_pod_gets_its_certificate_by_the_token_that_the_kubelet_replaced() -> Result<()> {
    // The shortest lifetime that the API server grants.
    let lives = |seconds: u32| -> Result<()> {
        let set = objects(&["daemonset", "gatewright-envoy", "-n", NAMESPACE])?
            .pop()
            .context("a DaemonSet")?;
        let volumes = set["spec"]["template"]["spec"]["volumes"]
            .as_array()
            .context("volumes")?;
        let at = volumes
            .iter()
            .position(|volume| volume["name"] == "identity")
            .context("its volume")?;
        let path = format!(
            "/spec/template/spec/volumes/{at}/projected/sources/0/serviceAccountToken/expirationSeconds"
        );
        let patch = json!([{"op": "replace", "path": path, "value": seconds}]).to_string();
        // By the name that Helm has, which changes it back in the end.
        let by = ["--field-manager=helm", "--type=json", "-p", &patch];
        kubectl(
            &[
                &["-n", NAMESPACE, "patch", "daemonset", "gatewright-envoy"],
                &by[..],
            ]
            .concat(),
        )?;
        rolled_out("daemonset/gatewright-envoy").map(drop)
    };
    lives(600)?;
    let pod = envoys()?
        .into_iter()
        .find(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .context("an Envoy")?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
    let name = text(&pod["metadata"]["name"])?;
    let uid = text(&pod["metadata"]["uid"])?;
    let node = text(&pod["spec"]["nodeName"])?;
    let inside = |script: &str, more: &[&str]| {
        run(
            "docker",
            &[
                &[
                    "exec",
                    node.as_str(),
                    "sh",
                    "-c",
                    script,
                    "sh",
                    uid.as_str(),
                ],
                more,
            ]
            .concat(),
        )
    };
    let before = inside(DIGEST, &[])?;
    let began = Instant::now();
    println!("the kubelet replaces the token after 8 minutes");
    while inside(DIGEST, &[])? == before {
        ensure!(
            began.elapsed() < Duration::from_secs(660),
            "the token of {name} is the same after 11 minutes"
        );
        sleep(Duration::from_secs(5)).await;
    }
    let all = pod["status"]["containerStatuses"]
        .as_array()
        .context("no containers")?;
    let identity = all
        .iter()
        .find(|container| container["name"] == "identity")
        .context("no identity")?;
    let id = identity["containerID"]
        .as_str()
        .and_then(|id| id.rsplit('/').next())
        .context("its ID")?;
    inside(FORGET, &[id])?;
    let deadline = Instant::now() + LIMIT;
    // Logs of the restarted container; they are empty before.
    while !kubectl(&["-n", NAMESPACE, "logs", &name, "-c", "identity"])
        .is_ok_and(|log| log.contains("certificate from"))
    {
        ensure!(
            Instant::now() < deadline,
            "the pod {name} got no certificate"
        );
        sleep(Duration::from_millis(500)).await;
    }
    until_served(&shop()?).await?;
    lives(3600)
}
