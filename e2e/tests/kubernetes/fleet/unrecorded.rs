//! An API server that refuses to record the owner of one namespace's hostname: it is told, the
//! hostname waits, and nobody else does, also when the controller restarts.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::ApiServer;
use e2e::cluster::{Cluster, NAMESPACE, is_true};
use e2e::port::free_port;
use e2e::probe::Probe;
use kube::api::PostParams;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use super::{GATEWAY, change, gateway, tenant, told};

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const REFUSED: &str = "bad.mallory.example";
/// The time within which a replica starts: less than the minute after which it no longer waits for
/// owners in any case.
const SOON: Duration = Duration::from_secs(40);
/// A refused entry is tried again after a minute.
const HEALED: Duration = Duration::from_secs(150);

/// Returns the first byte of the hash by which the record of a hostname has its ConfigMap.
fn shard(host: &str) -> u8 {
    Sha256::digest(format!("hostname {host}").as_bytes())[0]
}

/// Returns a hostname of alice's whose record belongs into the same ConfigMap as the refused one.
fn beside() -> Result<String> {
    let wanted = shard(REFUSED);
    let names = (0..).map(|n| format!("h{n}.alice.example"));
    for name in names.take(10_000) {
        if shard(&name) == wanted {
            return Ok(name);
        }
    }
    anyhow::bail!("no name has that hash")
}

/// Refuses ConfigMaps of ours that name mallory.
async fn refuse(server: &ApiServer) -> Result<()> {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps"]}]);
    let none =
        "!has(object.data) || !object.data.exists(key, object.data[key].contains('mallory'))";
    let policy = json!({"apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "theirs"},
        "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules},
            "matchConditions": [{"name": "ours", "expression": format!("request.namespace == '{NAMESPACE}'")}],
            "validations": [{"expression": none, "message": "no mallory here"}]}});
    let binding = json!({"apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "theirs"}, "spec": {"policyName": "theirs", "validationActions": ["Deny"]}});
    server.put(policy).await?;
    server.put(binding).await?;
    let maps = server.api("v1", "ConfigMap", NAMESPACE).await?;
    let probe = serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "probe", "namespace": NAMESPACE}, "data": {"a": "mallory"}}))?;
    let deadline = Instant::now() + Duration::from_secs(60);
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    while maps.create(&dry_run, &probe).await.is_ok() {
        ensure!(Instant::now() < deadline, "the policy is not in force");
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn all_programmed(gateway: &Value, count: usize) -> bool {
    let listeners = gateway["status"]["listeners"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    listeners.len() == count
        && listeners
            .iter()
            .all(|listener| is_true(listener, "Programmed"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn an_owner_that_cannot_be_recorded_holds_up_nobody_else() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster
        .server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let port = free_port()?;
    let new = beside()?;
    let hosts = ["first.alice.example", new.as_str()];
    // The port is alice's first of all, so that only hostnames are refused.
    tenant(&cluster, "alice", "gatewright", port, &hosts[..1]).await?;
    let (envoy, _tls) = cluster.envoy("envoy-a").await?;
    cluster
        .until(GATEWAY, "Gateway", "alice", "edge", |o| {
            all_programmed(o, 1)
        })
        .await?;

    refuse(&cluster.server).await?;
    tenant(&cluster, "mallory", "gatewright", port, &[REFUSED]).await?;
    cluster
        .until(GATEWAY, "Gateway", "mallory", "edge", |o| {
            told(&o["status"]["listeners"][0], "Accepted").0 == "Pending"
        })
        .await?;
    let ready = controller
        .until_told("/readyz", 200, "have no owner and are not served")
        .await?;
    ensure!(
        ready.contains("no mallory here"),
        "the reason of the API server is told: {ready}"
    );
    controller
        .until_told("/metrics", 200, "\ngatewright_unrecorded_owners ")
        .await?;

    // A new hostname of another namespace in the same ConfigMap.
    let listeners = gateway("alice", "gatewright", port, &hosts)["spec"]["listeners"].clone();
    change(&cluster, "alice", json!({"spec": {"listeners": listeners}})).await?;
    cluster
        .until(GATEWAY, "Gateway", "alice", "edge", |o| {
            all_programmed(o, 2)
        })
        .await
        .context("alice waits")?;

    // A controller and an Envoy that start meanwhile.
    drop((controller, envoy));
    let mut controller = cluster.controller("two")?;
    controller
        .line("xDS at")
        .await
        .context("the restarted controller serves")?;
    // A replica that does not write the record learns of no refusal, and waits as little.
    let began = Instant::now();
    let mut other = cluster.replica("three")?;
    other.line("xDS at").await?;
    ensure!(
        began.elapsed() < SOON,
        "another replica opened after {:?}",
        began.elapsed()
    );
    let (_envoy, _tls) = cluster.envoy("envoy-b").await?;
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let deadline = Instant::now() + Duration::from_secs(60);
    for host in hosts {
        while Probe::https(at, host).send().await.is_err() {
            ensure!(
                Instant::now() < deadline,
                "{host} is not served after the restart"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }
    ensure!(
        Probe::https(at, REFUSED).send().await.is_err(),
        "a hostname without an owner is served"
    );

    let policies = cluster
        .server
        .api(ADMISSION, "ValidatingAdmissionPolicyBinding", "")
        .await?;
    policies.delete("theirs", &Default::default()).await?;
    let deadline = Instant::now() + HEALED;
    let gateways = cluster.server.api(GATEWAY, "Gateway", "mallory").await?;
    while !all_programmed(&serde_json::to_value(gateways.get("edge").await?)?, 1) {
        ensure!(
            Instant::now() < deadline,
            "mallory's hostname is not served although its owner can be recorded"
        );
        sleep(Duration::from_millis(500)).await;
    }
    controller
        .until_told("/metrics", 200, "\ngatewright_unrecorded_owners 0\n")
        .await?;
    Ok(())
}
