//! Rights that are revoked and granted again.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{ACCOUNT, Cluster, condition, is_true, tls_secret};
use e2e::deploy::with_component;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::hardening::{LastGoodVolume, bring_key, until_settled};

use e2e::tenants::{GATEWAY, until};

fn gateway() -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "gatewright", "listeners": [{"name": "a", "protocol": "HTTPS", "port": 8443,
            "hostname": "a.example.org", "tls": {"certificateRefs": [{"name": "cert"}]}}]}})
}

fn resolved(gateway: &Value) -> Option<&Value> {
    condition(&gateway["status"]["listeners"][0], "ResolvedRefs")
}

/// The time within which what is allowed is watched.
const LIMIT: Duration = Duration::from_secs(180);
const ROLES: (&str, &str, &str) = ("rbac.authorization.k8s.io/v1", "ClusterRole", "");

/// Returns the rules of the controller's ClusterRole.
async fn rules(server: &ApiServer) -> Result<Vec<Value>> {
    let role = server
        .api(ROLES.0, ROLES.1, ROLES.2)
        .await?
        .get("gatewright-controller")
        .await?;
    role.data["rules"]
        .as_array()
        .cloned()
        .context("it has rules")
}

/// Gives the controller these rules, and no others.
async fn give(server: &ApiServer, rules: &[Value]) -> Result<()> {
    let roles = server.api(ROLES.0, ROLES.1, ROLES.2).await?;
    let patch = Patch::Merge(json!({"rules": rules}));
    roles
        .patch("gatewright-controller", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn a_secret_that_may_not_be_read_is_read_once_it_may() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    server
        .put(tls_secret("default", "cert", &["a.example.org"])?)
        .await?;
    server.put(gateway()).await?;
    let full = rules(server).await?;
    let mut narrow = full.clone();
    for rule in narrow
        .iter_mut()
        .filter(|rule| rule["resources"] == json!(["secrets", "configmaps"]))
    {
        rule["verbs"] = json!(["list", "watch"]);
    }
    assert_ne!(full, narrow, "the role has the rule");
    let get = ("get", "", "secrets", "default");
    give(server, &narrow).await?;
    server.until_may(ACCOUNT, get, false).await?;
    let mut controller = cluster.controller("one")?;
    // One unreadable Secret does not keep others from being served, and is named by the objects
    // that reference it.
    controller.line("the view is complete").await?;
    let told = cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            resolved(o).is_some()
        })
        .await?;
    let told = resolved(&told).expect("just seen");
    assert_eq!(told["status"], "False");
    let message = told["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("not allowed") && message.contains("the verb get on secrets"),
        "{message}"
    );

    // The Secret is not changed.
    give(server, &full).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            is_true(&o["status"]["listeners"][0], "ResolvedRefs")
        })
        .await?;

    // Secrets that were read are kept when the right is revoked again, even if there is an
    // unreadable newer version.
    give(server, &narrow).await?;
    server.until_may(ACCOUNT, get, false).await?;
    let refusals = || {
        controller
            .output()
            .matches("reading secret default/cert: not allowed")
            .count()
    };
    let before = refusals();
    server
        .put(tls_secret("default", "cert", &["a.example.org"])?)
        .await?;
    until("the newer one is asked for", async || {
        Ok(refusals() > before)
    })
    .await?;
    sleep(Duration::from_secs(2)).await;
    let gateways = server.api(GATEWAY, "Gateway", "default").await?;
    let now = serde_json::to_value(gateways.get("edge").await?)?;
    assert!(
        is_true(&now["status"]["listeners"][0], "ResolvedRefs"),
        "{now:#}"
    );
    Ok(())
}

/// A kind that only adds to what is served holds up nothing else.
#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn all_else_is_served_without_the_right_to_read_a_kind_of_the_experimental_channel()
-> Result<()> {
    let server = ApiServer::with(&[Definitions::ExperimentalGatewayApi]).await?;
    let cluster = Cluster::over(server).await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    server
        .put(tls_secret("default", "cert", &["a.example.org"])?)
        .await?;
    server.put(gateway()).await?;
    let mut controller =
        cluster.controller_with("one", &["--set", "gatewayApi.channel=Experimental"])?;
    controller.line("the view is complete").await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            is_true(&o["status"]["listeners"][0], "Accepted")
        })
        .await?;
    controller
        .until_told("/readyz", 200, "XBackendTrafficPolicy: not allowed")
        .await?;

    // The component of deploy/ gives the right.
    let role = with_component("experimental")?
        .into_iter()
        .find(|object| object["kind"] == "ClusterRole");
    server
        .put(role.context("deploy/ has a ClusterRole")?)
        .await?;
    controller.line("XBackendTrafficPolicy: watched").await?;
    // The other kinds of that channel are watched soon afterwards.
    let deadline = Instant::now() + LIMIT;
    loop {
        let told = controller.probe("/readyz").await?.1;
        if told == "ok\n" {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "it tells {told}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// A rollout that takes a right away stops at the first replica.
#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn a_replica_is_not_ready_while_a_missing_right_leaves_it_with_the_last_good_state()
-> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    server
        .put(tls_secret("default", "cert", &["a.example.org"])?)
        .await?;
    server.put(gateway()).await?;
    let volume = LastGoodVolume::new()?;
    let kept = volume.arguments(&[]);
    let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
    let mut controller = cluster.controller_with("one", &kept)?;
    controller.line("holding the lease").await?;
    bring_key(&cluster, &volume.key()).await?;
    until_settled(&volume.file()).await?;
    drop(controller);

    let full = rules(server).await?;
    let mut narrow = full.clone();
    for kinds in narrow
        .iter_mut()
        .filter_map(|rule| rule["resources"].as_array_mut())
    {
        kinds.retain(|kind| kind != "httproutes");
    }
    let list = ("list", "gateway.networking.k8s.io", "httproutes", "default");
    give(server, &narrow).await?;
    server.until_may(ACCOUNT, list, false).await?;
    let mut controller = cluster.controller_with("one", &kept)?;
    controller.line("of the last good state are served").await?;
    controller
        .until_told("/readyz", 503, "HTTPRoute: not allowed")
        .await?;

    give(server, &full).await?;
    controller.until_told("/readyz", 200, "ok\n").await?;
    Ok(())
}
