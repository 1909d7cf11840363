//! Rights that are revoked and granted again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::apiserver::ApiServer;
use e2e::cluster::{ACCOUNT, Cluster, condition, is_true, tls_secret};
use e2e::deploy::with_component;
use e2e::gatewright::Gatewright;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::hardening::{bring_key, until_settled};

const LIMIT: Duration = Duration::from_secs(120);

use e2e::tenants::{GATEWAY, until};

fn gateway() -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "gatewright", "listeners": [{"name": "a", "protocol": "HTTPS", "port": 8443,
            "hostname": "a.example.org", "tls": {"certificateRefs": [{"name": "cert"}]}}]}})
}

fn resolved(gateway: &Value) -> Option<&Value> {
    condition(&gateway["status"]["listeners"][0], "ResolvedRefs")
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn a_secret_that_may_not_be_read_is_read_once_it_may() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server.apply(include_str!("../../../../deploy/gatewayclass.yaml")).await?;
    server.put(tls_secret("default", "cert", &["a.example.org"])?).await?;
    server.put(gateway()).await?;
    let roles = server.api("rbac.authorization.k8s.io/v1", "ClusterRole", "").await?;
    let full = roles.get("gatewright-controller").await?.data["rules"].clone();
    let mut narrow = full.clone();
    for rule in narrow.as_array_mut().expect("rules") {
        if rule["resources"] == json!(["secrets", "configmaps"]) {
            rule["verbs"] = json!(["list", "watch"]);
        }
    }
    assert_ne!(full, narrow);
    let give = async |rules: &Value| {
        roles.patch("gatewright-controller", &PatchParams::default(), &Patch::Merge(json!({"rules": rules}))).await
    };
    let get = ("get", "", "secrets", "default");
    give(&narrow).await?;
    server.until_may(ACCOUNT, get, false).await?;
    let mut controller = cluster.controller("one")?;
    // One unreadable Secret does not keep others from being served, and is named by the objects that reference it.
    controller.line("the view is complete").await?;
    let told = cluster.until(GATEWAY, "Gateway", "default", "edge", |o| resolved(o).is_some()).await?;
    let told = resolved(&told).expect("just seen");
    assert_eq!(told["status"], "False");
    let message = told["message"].as_str().unwrap_or_default();
    assert!(message.contains("not allowed") && message.contains("the verb get on secrets"), "{message}");

    // The Secret is not changed.
    give(&full).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| is_true(&o["status"]["listeners"][0], "ResolvedRefs"))
        .await?;

    // Secrets that were read are kept when the right is revoked again, even if there is an unreadable newer version.
    give(&narrow).await?;
    server.until_may(ACCOUNT, get, false).await?;
    let refusals = || controller.output().matches("reading secret default/cert: not allowed").count();
    let before = refusals();
    server.put(tls_secret("default", "cert", &["a.example.org"])?).await?;
    until("the newer one is asked for", async || Ok(refusals() > before)).await?;
    sleep(Duration::from_secs(2)).await;
    let gateways = server.api(GATEWAY, "Gateway", "default").await?;
    let now = serde_json::to_value(gateways.get("edge").await?)?;
    assert!(is_true(&now["status"]["listeners"][0], "ResolvedRefs"), "{now:#}");
    Ok(())
}

/// Waits until the readiness of a controller has this status and text.
async fn until_ready(controller: &mut Gatewright, status: u16, text: &str) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let (code, told) = controller.probe("/readyz").await?;
        if code == status && told.contains(text) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "/readyz answers {code}, and not {status} {text:?}: {told}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// A kind that only adds to what is served holds up nothing else.
#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn all_else_is_served_without_the_right_to_read_a_kind_of_the_experimental_channel() -> Result<()> {
    let server = ApiServer::start().await?;
    server.install_experimental_gateway_api().await?;
    let cluster = Cluster::over(server).await?;
    let server = &cluster.server;
    server.apply(include_str!("../../../../deploy/gatewayclass.yaml")).await?;
    server.put(tls_secret("default", "cert", &["a.example.org"])?).await?;
    server.put(gateway()).await?;
    let mut controller = cluster.controller_with("one", &["--gateway-api-channel", "experimental"])?;
    controller.line("the view is complete").await?;
    cluster.until(GATEWAY, "Gateway", "default", "edge", |o| is_true(&o["status"]["listeners"][0], "Accepted")).await?;
    until_ready(&mut controller, 200, "XBackendTrafficPolicy: not allowed").await?;

    // The component of deploy/ gives the right.
    let role = with_component("experimental")?.into_iter().find(|object| object["kind"] == "ClusterRole");
    server.put(role.context("deploy/ has a ClusterRole")?).await?;
    controller.line("XBackendTrafficPolicy: watched").await?;
    until_ready(&mut controller, 200, "ok\n").await?;
    assert_eq!(controller.probe("/readyz").await?.1, "ok\n", "nothing else is told");
    Ok(())
}

/// A rollout that takes a right away stops at the first replica.
#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn a_replica_is_not_ready_while_a_missing_right_leaves_it_with_the_last_good_state() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server.apply(include_str!("../../../../deploy/gatewayclass.yaml")).await?;
    server.put(tls_secret("default", "cert", &["a.example.org"])?).await?;
    server.put(gateway()).await?;
    let volume = tempfile::tempdir()?;
    let (file, key) = (volume.path().join("last-good"), volume.path().join("key"));
    let (file_text, key_text) = (file.display().to_string(), key.display().to_string());
    let kept = ["--last-good", &*file_text, "--last-good-key", &*key_text];
    let mut controller = cluster.controller_with("one", &kept)?;
    controller.line("holding the lease").await?;
    bring_key(&cluster, &key).await?;
    until_settled(&file).await?;
    drop(controller);

    let roles = server.api("rbac.authorization.k8s.io/v1", "ClusterRole", "").await?;
    let full = roles.get("gatewright-controller").await?.data["rules"].clone();
    let mut narrow = full.clone();
    for rule in narrow.as_array_mut().context("rules")? {
        if let Some(kinds) = rule["resources"].as_array_mut() {
            kinds.retain(|kind| kind != "httproutes");
        }
    }
    let give = async |rules: &Value| {
        roles.patch("gatewright-controller", &PatchParams::default(), &Patch::Merge(json!({"rules": rules}))).await
    };
    let list = ("list", "gateway.networking.k8s.io", "httproutes", "default");
    give(&narrow).await?;
    server.until_may(ACCOUNT, list, false).await?;
    let mut controller = cluster.controller_with("one", &kept)?;
    controller.line("of the last good state are served").await?;
    until_ready(&mut controller, 503, "HTTPRoute: not allowed").await?;

    give(&full).await?;
    until_ready(&mut controller, 200, "ok\n").await
}
