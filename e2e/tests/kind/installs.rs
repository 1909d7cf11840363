//! Installations that are upgraded, rolled back, removed, made again, and made without the internet.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::walkthrough::{Step, steps};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::cluster::{LIMIT, NAMESPACE, kubectl, objects, rolled_out, root, run, shop, until_served};
use super::traffic::Traffic;

/// A release of another version, which is the same program under another tag, and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn an_upgrade_and_its_rollback_lose_no_request() -> Result<()> {
    let (image, version) = ("docker.io/library/gatewright", env!("CARGO_PKG_VERSION"));
    let (now, next) = (format!("{image}:{version}"), format!("{image}:{version}-next"));
    for node in objects(&["nodes"])? {
        let node = node["metadata"]["name"].as_str().context("a name")?;
        run("docker", &["exec", node, "ctr", "-n", "k8s.io", "images", "tag", "--force", &now, &next])?;
    }
    let uses = |tag: &str| -> Result<bool> {
        let pods = objects(&["pods", "-n", NAMESPACE])?;
        let images = pods.iter().flat_map(|pod| pod["spec"]["containers"].as_array().into_iter().flatten());
        let ours: Vec<&str> =
            images.filter_map(|one| one["image"].as_str()).filter(|image| image.contains("gatewright")).collect();
        Ok(!ours.is_empty() && ours.iter().all(|image| image.ends_with(tag)))
    };
    until_served(&shop()?).await?;
    let traffic = Traffic::start(&shop()?);
    let chart = root().join("deploy/chart").display().to_string();
    let tag = format!("image.tag={version}-next");
    let upgrade = ["upgrade", "gatewright", &chart, "-n", NAMESPACE, "--reuse-values", "--set", &tag];
    let wait = ["--wait", "--timeout=5m"];
    run("helm", &[&upgrade[..], &wait].concat())?;
    for (step, ends) in [("the upgrade", "-next"), ("the rollback", version)] {
        if ends == version {
            run("helm", &[&["rollback", "gatewright", "-n", NAMESPACE][..], &wait].concat())?;
        }
        for what in ["deployment/gatewright-controller", "daemonset/gatewright-envoy"] {
            rolled_out(what)?;
        }
        let deadline = Instant::now() + LIMIT;
        while !uses(ends)? {
            ensure!(Instant::now() < deadline, "after {step} there are pods of another version");
            sleep(Duration::from_millis(500)).await;
        }
    }
    until_served(&shop()?).await?;
    traffic.none_failed(100).await
}

/// What there is of the chart and of the controller, by kind and name.
fn left() -> Result<Vec<String>> {
    let kinds = "serviceaccounts,services,configmaps,secrets,deployments,daemonsets,pods,leases,poddisruptionbudgets,\
networkpolicies,roles,rolebindings,endpointslices";
    let cluster = "clusterroles,clusterrolebindings,gatewayclasses,validatingadmissionpolicies,validatingadmissionpolicybindings,\
priorityclasses";
    let mut all = objects(&[kinds, "-n", NAMESPACE])?;
    all.extend(objects(&[cluster])?);
    all.extend(objects(&["configmaps", "-n", "kube-system"])?);
    let name = |object: &Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        name.contains("gatewright").then(|| format!("{kind} {name}"))
    };
    Ok(all.iter().filter_map(name).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn an_uninstall_leaves_what_is_the_users_and_no_more() -> Result<()> {
    let probe = shop()?;
    until_served(&probe).await?;
    let values = run("helm", &["get", "values", "gatewright", "-n", NAMESPACE, "-o", "json"])?;
    let file = std::env::temp_dir().join(format!("gatewright-kind-values-{}.json", std::process::id()));
    std::fs::write(&file, values)?;
    let before = objects(&["secrets", "-n", "tenant-alice", "--field-selector=type=kubernetes.io/tls"])?;
    assert!(!before.is_empty());

    run("helm", &["uninstall", "gatewright", "-n", NAMESPACE, "--wait", "--timeout=3m"])?;
    kubectl(&["-n", NAMESPACE, "wait", "pods", "--all", "--for=delete", "--timeout=3m"])?;
    let deadline = Instant::now() + LIMIT;
    loop {
        // Keys, records and the internal CA, for whoever installs again.
        let kept = ["Secret gatewright-", "ConfigMap gatewright-", "Lease gatewright-controller"];
        let more: Vec<String> =
            left()?.into_iter().filter(|name| !kept.iter().any(|kept| name.starts_with(kept))).collect();
        if more.is_empty() {
            break;
        }
        ensure!(Instant::now() < deadline, "it is still there: {more:?}");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(objects(&["tenantgateways", "-A"])?.len(), 2, "what users wrote stays");

    // Again: the same certificates serve, and none is issued.
    let chart = root().join("deploy/chart").display().to_string();
    run(
        "helm",
        &[
            "install",
            "gatewright",
            &chart,
            "-n",
            NAMESPACE,
            "-f",
            &file.display().to_string(),
            "--wait",
            "--timeout=5m",
        ],
    )?;
    std::fs::remove_file(&file)?;
    until_served(&shop()?).await?;
    let data = |all: &[Value]| all.iter().map(|secret| secret["data"].clone()).collect::<Vec<_>>();
    let after = objects(&["secrets", "-n", "tenant-alice", "--field-selector=type=kubernetes.io/tls"])?;
    assert_eq!(data(&before), data(&after));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn the_archive_installs_without_the_internet() -> Result<()> {
    let values = run("helm", &["get", "values", "gatewright", "-n", NAMESPACE, "-o", "json"])?;
    let dist = tempfile::Builder::new().prefix("airgap").tempdir()?;
    let (folder, kept) = (dist.path().display().to_string(), dist.path().join("kept.json"));
    std::fs::write(&kept, values)?;
    // Each step is for a place of its own: a checkout, every node, and whoever has kubectl.
    let page = root().join("docs/quickstart-airgap.md");
    let [made, imported, installed, published, asked]: [Step; 5] = steps(&std::fs::read_to_string(&page)?)?
        .try_into()
        .map_err(|steps: Vec<Step>| anyhow::anyhow!("{} has {} steps", page.display(), steps.len()))?;
    let at = root().display().to_string();
    let make = format!("cd '{at}' && export DIST='{folder}/dist' && {}", made.commands);
    made.compare(&run("bash", &["-ec", &make])?)?;
    run("helm", &["uninstall", "gatewright", "-n", NAMESPACE, "--wait", "--timeout=3m"])?;

    // Onto each node, and nothing else: its images come from the archive, and so does all the rest.
    let name = format!("gatewright-{}-airgap", env!("CARGO_PKG_VERSION"));
    let archive = format!("{folder}/dist/{name}.tar");
    let unpacked = format!("/root/{name}");
    let nodes = objects(&["nodes"])?;
    let nodes: Vec<&str> = nodes.iter().filter_map(|node| node["metadata"]["name"].as_str()).collect();
    let inside = |node: &str, commands: &str| {
        let commands = format!("cd /root && export KUBECONFIG=/etc/kubernetes/admin.conf && {commands}");
        run("docker", &["exec", node, "bash", "-ec", &commands])
    };
    for node in &nodes {
        run("docker", &["cp", &archive, &format!("{node}:/root/{name}.tar")])?;
        inside(node, "ctr -n k8s.io images ls -q | grep -e gatewright: -e envoyproxy | xargs ctr -n k8s.io images rm")?;
        imported.compare(&inside(node, &imported.commands)?)?;
    }
    let control = nodes.iter().find(|node| node.ends_with("control-plane")).context("a control plane")?;
    installed.compare(&inside(control, &installed.commands)?)?;
    for step in [published, asked] {
        step.compare(&inside(control, &step.commands)?)?;
    }
    until_served(&shop()?).await?;

    // Back to what was there.
    let delete = format!("KUBECONFIG=/etc/kubernetes/admin.conf kubectl delete --wait -f {unpacked}/install.yaml");
    run("docker", &["exec", control, "sh", "-c", &delete])?;
    for node in &nodes {
        inside(node, &format!("rm -r {unpacked}.tar {unpacked}"))?;
    }
    let chart = root().join("deploy/chart").display().to_string();
    let kept = kept.display().to_string();
    run("helm", &["install", "gatewright", &chart, "-n", NAMESPACE, "-f", &kept, "--wait", "--timeout=5m"])?;
    until_served(&shop()?).await
}
