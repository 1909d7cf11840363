//! Installations that are upgraded, rolled back, removed, made again, and made without the
//! internet.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::walkthrough::{Step, steps};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::cluster::{
    LIMIT, NAMESPACE, kubectl, objects, policies_in_force, rolled_out, root, run, shop,
    until_served,
};
use super::traffic::Traffic;

/// The release that is upgraded: its chart, and the tag of its image. `PREVIOUS` names its folder,
/// as `make release` writes it; without that it is this program under another tag.
fn previous() -> Result<(String, String)> {
    let version = env!("CARGO_PKG_VERSION");
    let Some(folder) = std::env::var_os("PREVIOUS").filter(|folder| !folder.is_empty()) else {
        let image = "docker.io/library/gatewright";
        let tag = format!("{version}-previous");
        let now = format!("{image}:{version}");
        let then = format!("{image}:{tag}");
        for node in objects(&["nodes"])? {
            let node = node["metadata"]["name"].as_str().context("a name")?;
            run(
                "docker",
                &[
                    "exec", node, "ctr", "-n", "k8s.io", "images", "tag", "--force", &now, &then,
                ],
            )?;
        }
        return Ok((root().join("deploy/chart").display().to_string(), tag));
    };
    let files: Vec<String> = std::fs::read_dir(&folder)?
        .map(|file| Ok(file?.path().display().to_string()))
        .collect::<Result<_>>()?;
    let named = |end: &str| {
        files
            .iter()
            .find(|name| name.ends_with(end))
            .with_context(|| format!("no {end} in PREVIOUS"))
    };
    let chart = named("-chart.tgz")?;
    let tag = chart
        .rsplit_once("/gatewright-")
        .and_then(|(_, name)| name.strip_suffix("-chart.tgz"))
        .context("a version")?;
    ensure!(tag != version, "PREVIOUS has this version as well");
    run(
        "kind",
        &[
            "load",
            "image-archive",
            "--name",
            "gatewright",
            named("-image.tar")?,
        ],
    )?;
    Ok((chart.clone(), tag.to_owned()))
}

/// Helm, until every pod has our image under this tag.
async fn changed(arguments: &[&str], tag: &str) -> Result<()> {
    run(
        "helm",
        &[arguments, &["-n", NAMESPACE, "--wait", "--timeout=5m"]].concat(),
    )?;
    for what in [
        "deployment/gatewright-controller",
        "daemonset/gatewright-envoy",
    ] {
        rolled_out(what)?;
    }
    let end = format!(":{tag}");
    let deadline = Instant::now() + LIMIT;
    loop {
        let pods = objects(&["pods", "-n", NAMESPACE])?;
        let images = pods
            .iter()
            .flat_map(|pod| pod["spec"]["containers"].as_array().into_iter().flatten());
        let images: Vec<&str> = images
            .filter_map(|container| container["image"].as_str())
            .collect();
        let ours: Vec<&&str> = images
            .iter()
            .filter(|image| image.contains("gatewright"))
            .collect();
        if !ours.is_empty() && ours.iter().all(|image| image.ends_with(&end)) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "after helm {} there are {ours:?}",
            arguments.join(" ")
        );
        sleep(Duration::from_millis(500)).await;
    }
}

/// From another version to this one, back, and here again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn an_upgrade_and_its_rollback_lose_no_request() -> Result<()> {
    let (older, older_tag) = previous()?;
    let newer = root().join("deploy/chart").display().to_string();
    let upgrade = ["upgrade", "gatewright", "--reset-then-reuse-values"];
    let set = format!("image.tag={older_tag}");
    changed(
        &[&upgrade[..], &[&older, "--set", &set]].concat(),
        &older_tag,
    )
    .await?;
    until_served(&shop()?).await?;

    let traffic = Traffic::start(&shop()?);
    let version = env!("CARGO_PKG_VERSION");
    let forward = [&upgrade[..], &[&newer, "--set", "image.tag="]].concat();
    changed(&forward, version).await?;
    changed(&["rollback", "gatewright"], &older_tag).await?;
    until_served(&shop()?).await?;
    changed(&forward, version).await?;
    until_served(&shop()?).await?;
    traffic.none_failed(100).await
}

/// The objects of the chart and of the controller that exist, by kind and name.
pub(crate) fn left() -> Result<Vec<String>> {
    let kinds = "serviceaccounts,services,configmaps,secrets,deployments,daemonsets,pods,leases,poddisruptionbudgets,\
networkpolicies,roles,rolebindings,endpointslices";
    let cluster = "clusterroles,clusterrolebindings,gatewayclasses,validatingadmissionpolicies,validatingadmissionpolicybindings,\
priorityclasses";
    let mut all = objects(&[kinds, "-n", NAMESPACE])?;
    all.extend(objects(&[cluster])?);
    all.extend(objects(&["configmaps", "-n", "kube-system"])?);
    Ok(all
        .iter()
        .filter_map(|object| {
            let kind = object["kind"].as_str().unwrap_or_default();
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            name.contains("gatewright")
                .then(|| format!("{kind} {name}"))
        })
        .collect())
}

/// The namespaces, names and UIDs of objects that the controller did not write.
fn identities(objects: &[Value]) -> BTreeSet<String> {
    objects
        .iter()
        .filter_map(|object| {
            let metadata = &object["metadata"];
            let name = format!(
                "{}/{} {}",
                metadata["namespace"], metadata["name"], metadata["uid"]
            );
            metadata.get("ownerReferences").is_none().then_some(name)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn an_uninstall_leaves_what_is_the_users_and_no_more() -> Result<()> {
    let probe = shop()?;
    until_served(&probe).await?;
    let values = run(
        "helm",
        &["get", "values", "gatewright", "-n", NAMESPACE, "-o", "json"],
    )?;
    let file = std::env::temp_dir().join(format!(
        "gatewright-kind-values-{}.json",
        std::process::id()
    ));
    std::fs::write(&file, values)?;
    let before = objects(&[
        "secrets",
        "-n",
        "tenant-alice",
        "--field-selector=type=kubernetes.io/tls",
    ])?;
    assert!(!before.is_empty());
    let written = identities(&objects(&["tenantgateways,httproutes", "-A"])?);
    assert!(
        written.len() >= 4,
        "a TenantGateway and a route of each tenant: {written:?}"
    );

    run(
        "helm",
        &[
            "uninstall",
            "gatewright",
            "-n",
            NAMESPACE,
            "--wait",
            "--timeout=3m",
        ],
    )?;
    kubectl(&[
        "-n",
        NAMESPACE,
        "wait",
        "pods",
        "--all",
        "--for=delete",
        "--timeout=3m",
    ])?;
    let deadline = Instant::now() + LIMIT;
    loop {
        // Keys, records and the internal CA, for whoever installs again, and the classes of
        // Gateways.
        let kept = [
            "Secret gatewright-",
            "ConfigMap gatewright-",
            "Lease gatewright-controller",
            "GatewayClass ",
            "GatewayParameters ",
        ];
        let more: Vec<String> = left()?
            .into_iter()
            .filter(|name| !kept.iter().any(|kept| name.starts_with(kept)))
            .collect();
        if more.is_empty() {
            break;
        }
        ensure!(Instant::now() < deadline, "it is still there: {more:?}");
        sleep(Duration::from_secs(1)).await;
    }
    let stayed = identities(&objects(&["tenantgateways,httproutes", "-A"])?);

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
    // Compared only now, so that a difference does not leave the other tests without an
    // installation.
    let lost: Vec<&String> = written.difference(&stayed).collect();
    assert!(lost.is_empty(), "what users wrote stays: {lost:?} is gone");
    until_served(&shop()?).await?;
    let data = |all: &[Value]| {
        all.iter()
            .map(|secret| secret["data"].clone())
            .collect::<Vec<_>>()
    };
    let after = objects(&[
        "secrets",
        "-n",
        "tenant-alice",
        "--field-selector=type=kubernetes.io/tls",
    ])?;
    assert_eq!(data(&before), data(&after));
    policies_in_force().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn the_archive_installs_without_the_internet() -> Result<()> {
    let values = run(
        "helm",
        &["get", "values", "gatewright", "-n", NAMESPACE, "-o", "json"],
    )?;
    let dist = tempfile::Builder::new().prefix("airgap").tempdir()?;
    let folder = dist.path().display().to_string();
    let kept = dist.path().join("kept.json");
    std::fs::write(&kept, values)?;
    // Each step is for a place of its own: a checkout, every node, and whoever has kubectl.
    let (page, part) = ("quickstart.md", "install");
    let mut all = steps(&std::fs::read_to_string(root().join("docs").join(page))?)?;
    all.retain(|step| step.part == part);
    let [made, imported, installed, published, asked]: [Step; 5] = all
        .try_into()
        .map_err(|steps: Vec<Step>| anyhow::anyhow!("{page} has {} steps", steps.len()))?;
    let at = root().display().to_string();
    // Registries may be out of reach here, so that none tells the digest of Envoy's image.
    let make = format!(
        "cd '{at}' && export UNPINNED=1 DIST='{folder}/dist' && {}",
        made.commands
    );
    made.compare(&run("bash", &["-ec", &make])?)?;
    run(
        "helm",
        &[
            "uninstall",
            "gatewright",
            "-n",
            NAMESPACE,
            "--wait",
            "--timeout=3m",
        ],
    )?;

    // Onto each node, and nothing else: its images come from the archive, and so does all the rest.
    let name = format!("gatewright-{}-airgap", env!("CARGO_PKG_VERSION"));
    let archive = format!("{folder}/dist/{name}.tar");
    let unpacked = format!("/root/{name}");
    let nodes = objects(&["nodes"])?;
    let nodes: Vec<&str> = nodes
        .iter()
        .filter_map(|node| node["metadata"]["name"].as_str())
        .collect();
    let inside = |node: &str, commands: &str| {
        let commands =
            format!("cd /root && export KUBECONFIG=/etc/kubernetes/admin.conf && {commands}");
        run("docker", &["exec", node, "bash", "-ec", &commands])
    };
    for node in &nodes {
        run(
            "docker",
            &["cp", &archive, &format!("{node}:/root/{name}.tar")],
        )?;
        inside(
            node,
            "ctr -n k8s.io images ls -q | grep -e gatewright: -e envoyproxy | xargs ctr -n k8s.io images rm",
        )?;
        imported.compare(&inside(node, &imported.commands)?)?;
    }
    let control = nodes
        .iter()
        .find(|node| node.ends_with("control-plane"))
        .context("a control plane")?;
    installed.compare(&inside(control, &installed.commands)?)?;
    for step in [published, asked] {
        step.compare(&inside(control, &step.commands)?)?;
    }
    until_served(&shop()?).await?;

    // Back to what was there.
    let delete = format!(
        "KUBECONFIG=/etc/kubernetes/admin.conf kubectl delete --wait=false -f {unpacked}/install.yaml && \
         kubectl wait --for=delete --timeout=5m namespace/{NAMESPACE} && \
         kubectl patch gatewayclass gatewright --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"
    );
    run("docker", &["exec", control, "sh", "-c", &delete])?;
    for node in &nodes {
        inside(node, &format!("rm -r {unpacked}.tar {unpacked}"))?;
    }
    let chart = root().join("deploy/chart").display().to_string();
    let kept = kept.display().to_string();
    run(
        "helm",
        &[
            "install",
            "gatewright",
            &chart,
            "-n",
            NAMESPACE,
            "-f",
            &kept,
            "--wait",
            "--timeout=5m",
        ],
    )?;
    policies_in_force().await?;
    until_served(&shop()?).await
}
