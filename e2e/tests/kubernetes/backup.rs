//! An installation moves to an empty cluster by `gatewright backup` and `restore`: no hostname
//! changes hands, and no certificate is issued again.

use anyhow::{Context, Result};
use e2e::cluster::{Cluster, NAMESPACE, condition};
use e2e::gatewright::Gatewright;
use e2e::tenants::until;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use serde_json::{Value, json};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const HOST: &str = "shop.example.org";
/// The owner of the host, who was there first.
const OWNER: &str = "bob";
const OTHER: &str = "alice";

/// A cluster with the class and both namespaces.
async fn prepared() -> Result<Cluster> {
    let cluster = e2e::tenants::cluster().await?;
    let class = include_str!("../../../deploy/gatewayclass.yaml");
    cluster.server.apply(class).await?;
    Ok(cluster)
}

async fn namespace(cluster: &Cluster, name: &str) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    cluster.server.put(object).await.map(drop)
}

/// A Gateway of fleet Shared with the host, and a certificate of the internal CA.
async fn gateway(cluster: &Cluster, namespace: &str) -> Result<()> {
    let tls = json!({"options": {"gatewright.io/issuer": "internal-ca"}});
    let listener =
        json!({"name": "shop", "protocol": "HTTPS", "port": 8443, "hostname": HOST, "tls": tls});
    let object = json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": namespace},
        "spec": {"gatewayClassName": "gatewright", "listeners": [listener]}});
    cluster.server.put(object).await.map(drop)
}

/// A controller whose internal CA every namespace may use.
async fn controller_of(cluster: &Cluster) -> Result<Gatewright> {
    let allow = "internalCa.allow=[{namespaces: ['*'], hostnames: ['*']}]";
    let mut controller = cluster.controller_with("one", &["--set", allow])?;
    controller.line("holding the lease").await?;
    Ok(controller)
}

/// Waits until the listener of a namespace has the host, or has lost it to another one.
async fn until_judged(cluster: &Cluster, namespace: &str, reason: &str) -> Result<()> {
    cluster
        .until(GATEWAY, "Gateway", namespace, "edge", |gateway| {
            let listener = &gateway["status"]["listeners"][0];
            condition(listener, "Accepted").is_some_and(|told| told["reason"] == reason)
        })
        .await
        .map(drop)
}

/// The certificate and key of the owner's host, once it is issued.
async fn certificate(cluster: &Cluster) -> Result<Option<Secret>> {
    let api: Api<Secret> = Api::namespaced(cluster.server.client(), OWNER);
    let secrets = api.list(&Default::default()).await?.items;
    Ok(secrets.into_iter().find(|secret| {
        let data = secret.data.as_ref();
        data.is_some_and(|data| data.get("tls.key").is_some_and(|key| !key.0.is_empty()))
    }))
}

fn run(cluster: &Cluster, arguments: &[&str]) -> Result<(bool, String)> {
    let kubeconfig = cluster.server.kubeconfig("platform", &["system:masters"])?;
    let kubeconfig = kubeconfig.display().to_string();
    let output = Gatewright::run(&[arguments, &["--kubeconfig", &kubeconfig]].concat())?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8(text)?))
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn an_installation_goes_on_in_an_empty_cluster() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("backup.json").display().to_string();
    let old = prepared().await?;
    let controller = controller_of(&old).await?;
    namespace(&old, OWNER).await?;
    gateway(&old, OWNER).await?;
    until("the owner has a certificate", async || {
        Ok(certificate(&old).await?.is_some())
    })
    .await?;
    namespace(&old, OTHER).await?;
    gateway(&old, OTHER).await?;
    until_judged(&old, OWNER, "Accepted").await?;
    until_judged(&old, OTHER, "HostnameConflict").await?;
    old.quiet().await?;
    let issued = certificate(&old).await?.context("it is there")?;

    let (ok, text) = run(&old, &["backup", "-o", &file])?;
    assert!(ok, "{text}");
    let backup: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let items = backup["items"].as_array().context("a list")?;
    let kinds: Vec<&str> = items
        .iter()
        .filter_map(|item| item["kind"].as_str())
        .collect();
    let first_of = |kind: &str| kinds.iter().position(|of| *of == kind);
    assert!(
        first_of("Namespace") < first_of("ConfigMap") && first_of("ConfigMap") < first_of("Secret"),
        "in the order of a restore: {kinds:?}"
    );
    // A running controller would decide meanwhile.
    let (ok, text) = run(&old, &["restore", &file])?;
    assert!(!ok && text.contains("scale it to 0"), "{text}");
    drop(controller);

    let new = prepared().await?;
    let (ok, text) = run(&new, &["restore", &file])?;
    assert!(ok, "{text}");
    let (ok, text) = run(&new, &["restore", &file])?;
    assert!(ok && text.starts_with("0 objects are restored"), "{text}");
    // Here the other one is older.
    namespace(&new, OTHER).await?;
    gateway(&new, OTHER).await?;
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    gateway(&new, OWNER).await?;
    let _controller = controller_of(&new).await?;
    until_judged(&new, OTHER, "HostnameConflict").await?;
    until_judged(&new, OWNER, "Accepted").await?;
    new.quiet().await?;
    let restored = certificate(&new).await?.context("it is there")?;
    assert_eq!(restored.metadata.name, issued.metadata.name, "the name");
    assert_eq!(restored.data, issued.data, "no certificate is issued again");
    let roots: Api<Secret> = Api::namespaced(new.server.client(), NAMESPACE);
    let authorities = roots.list(&Default::default()).await?.items;
    let authorities = authorities.iter().filter(|secret| {
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        name.starts_with("gatewright-ca-")
    });
    assert_eq!(authorities.count(), 1, "the same internal CA");
    Ok(())
}
