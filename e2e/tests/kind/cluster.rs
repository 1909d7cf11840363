//! The cluster of `kind/cluster up`, as a person sees it who has kubectl.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::probe::{Probe, roots_of};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

pub(crate) const NAMESPACE: &str = "gatewright-system";
pub(crate) const HOST: &str = "shop.alice.example.org";
pub(crate) const LATE: &str = "late.alice.example.org";
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a program with the cluster's KUBECONFIG, as a person would.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let out = Command::new(root().join("kind/cluster"))
        .arg("exec")
        .arg(program)
        .args(arguments)
        .output()?;
    let told = String::from_utf8_lossy(&out.stdout).into_owned();
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(
        out.status.success(),
        "{program} {}: {told}{why}",
        arguments.join(" ")
    );
    Ok(told)
}

pub(crate) fn kubectl(arguments: &[&str]) -> Result<String> {
    run("kubectl", arguments)
}

/// `kubectl` with an object as its file.
pub(crate) fn kubectl_of(arguments: &[&str], object: &Value) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), object.to_string())?;
    kubectl(&[arguments, &["-f", &file.path().display().to_string()]].concat())
}

/// Runs `gatewright` in a pod of the controller.
pub(crate) fn gatewright(arguments: &[&str]) -> Result<String> {
    gatewright_in("deployment/gatewright-controller", arguments)
}

/// Runs `gatewright` in a pod, or in one of a workload.
pub(crate) fn gatewright_in(workload: &str, arguments: &[&str]) -> Result<String> {
    kubectl(
        &[
            &["-n", NAMESPACE, "exec", workload, "--", "gatewright"],
            arguments,
        ]
        .concat(),
    )
}

pub(crate) fn objects(arguments: &[&str]) -> Result<Vec<Value>> {
    let told: Value =
        serde_json::from_str(&kubectl(&[&["get", "-o", "json"], arguments].concat())?)?;
    Ok(told["items"]
        .as_array()
        .cloned()
        .unwrap_or_else(|| vec![told]))
}

/// Alice's shop.
pub(crate) fn shop() -> Result<Probe> {
    at(HOST)
}

/// The address of the load balancer, with the port of HTTPS.
pub(crate) fn address() -> Result<SocketAddr> {
    let service = objects(&["service", "gatewright-envoy", "-n", NAMESPACE])?
        .pop()
        .context("a Service")?;
    let address: IpAddr = service["status"]["loadBalancer"]["ingress"][0]["ip"]
        .as_str()
        .context("no address: run `make kind`")?
        .parse()?;
    Ok(SocketAddr::new(address, 443))
}

/// A host at the address of the load balancer, by the roots of the internal CA.
pub(crate) fn at(host: &str) -> Result<Probe> {
    let roots = objects(&["configmap", "gatewright-internal-ca", "-n", NAMESPACE])?
        .pop()
        .context("roots")?;
    let roots = roots_of(roots["data"]["ca.crt"].as_str().context("roots")?)?;
    Ok(Probe::https(address()?, host)
        .roots(roots)
        .limit(Duration::from_secs(30)))
}

pub(crate) async fn until_served(probe: &Probe) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = probe.send().await;
        if answer.as_ref().is_ok_and(|answer| answer.status == 200) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{answer:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// A route of alice's that the demo has not.
pub(crate) fn late() -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "late", "namespace": "tenant-alice"},
        "spec": {"parentRefs": [{"name": "gateway"}], "hostnames": [LATE],
            "rules": [{"backendRefs": [{"name": "shop", "port": 80}]}]}})
}

/// The pods of the shared fleet.
pub(crate) fn envoys() -> Result<Vec<Value>> {
    objects(&[
        "pods",
        "-n",
        NAMESPACE,
        "-l",
        "app.kubernetes.io/component=envoy",
    ])
}

/// The status of the container of Envoy, from the kubelet.
pub(crate) fn container(pod: &Value) -> Result<&Value> {
    let all = pod["status"]["containerStatuses"]
        .as_array()
        .context("no containers")?;
    all.iter()
        .find(|container| container["name"] == "envoy")
        .context("no Envoy")
}

/// The pod that holds the Lease.
pub(crate) fn holder() -> Result<String> {
    let lease = objects(&["lease", "gatewright-controller", "-n", NAMESPACE])?
        .pop()
        .context("a Lease")?;
    Ok(lease["spec"]["holderIdentity"]
        .as_str()
        .context("a holder")?
        .to_owned())
}

/// Waits until the policies around tenants are in force, a moment after they were installed.
pub(crate) async fn policies_in_force() -> Result<()> {
    let foreign = root()
        .join("kind/manifests/not-his.yaml")
        .display()
        .to_string();
    let deadline = Instant::now() + LIMIT;
    loop {
        let told = kubectl(&["apply", "--dry-run=server", "-f", &foreign]);
        if told
            .as_ref()
            .is_err_and(|why| format!("{why:#}").contains("must equal bob.example.org"))
        {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the policies are not in force: {told:?}"
        );
        sleep(Duration::from_millis(500)).await;
    }
}

pub(crate) fn rolled_out(what: &str) -> Result<String> {
    kubectl(&["-n", NAMESPACE, "rollout", "status", what, "--timeout=5m"])
}
