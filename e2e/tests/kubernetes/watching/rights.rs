//! Rights that are revoked and granted again.

use anyhow::Result;
use e2e::cluster::{ACCOUNT, Cluster, condition, is_true, tls_secret};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

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
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let gateways = server.api(GATEWAY, "Gateway", "default").await?;
    let now = serde_json::to_value(gateways.get("edge").await?)?;
    assert!(is_true(&now["status"]["listeners"][0], "ResolvedRefs"), "{now:#}");
    Ok(())
}
