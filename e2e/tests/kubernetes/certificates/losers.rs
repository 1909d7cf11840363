//! A claim that loses from the start gets neither an order nor a Secret.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use e2e::cluster::{Cluster, condition};
use e2e::tenants::{GATEWAY, member, namespace, route, tenant, until};
use e2e::testca::TestCa;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use serde_json::{Value, json};

const OWNER: &str = "tenant-a";
const MEMBER: &str = "tenant-b";
const STRANGER: &str = "mallory";
const HOST: &str = "shop.a.example.org";
const MEMBERS: &str = "own.a.example.org";
const STRANGERS: &str = "own.mallory.example";

/// Returns the Secrets with certificates of a namespace, by name; true if it has a key.
async fn secrets(cluster: &Cluster, namespace: &str) -> Result<BTreeMap<String, bool>> {
    let api: Api<Secret> = Api::namespaced(cluster.server.client(), namespace);
    let all = api.list(&Default::default()).await?.items;
    let tls = all
        .into_iter()
        .filter(|secret| secret.type_.as_deref() == Some("kubernetes.io/tls"));
    let has_key = |secret: &Secret| {
        secret
            .data
            .iter()
            .flatten()
            .any(|(name, key)| name == "tls.key" && !key.0.is_empty())
    };
    tls.map(|secret| {
        Ok((
            secret.metadata.name.clone().context("it has a name")?,
            has_key(&secret),
        ))
    })
    .collect()
}

async fn until_issued(cluster: &Cluster, namespace: &str, count: usize) -> Result<()> {
    until(
        &format!("{namespace} has {count} certificates"),
        async || {
            Ok(secrets(cluster, namespace)
                .await?
                .values()
                .filter(|has_key| **has_key)
                .count()
                == count)
        },
    )
    .await
}

/// A Gateway of fleet Shared whose listeners use the installation's issuer.
fn gateway(hosts: &[&str]) -> Value {
    let listener = |host: &&str| {
        json!({"name": host.split('.').next(), "protocol": "HTTPS", "port": 443, "hostname": host,
            "tls": {"options": {"gatewright.io/issuer": "acme"}}})
    };
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": STRANGER},
        "spec": {"gatewayClassName": "gatewright", "listeners": hosts.iter().map(listener).collect::<Vec<_>>()}})
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn a_claim_that_loses_has_neither_an_order_nor_a_secret() -> Result<()> {
    let cluster = e2e::tenants::cluster().await?;
    let ca = TestCa::start().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    namespace(server, OWNER, "a.example.org").await?;
    member(server, MEMBER, OWNER, "a.example.org").await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STRANGER}}))
        .await?;
    let directory = ca.directory();
    let arguments = [
        "--certificates",
        "own",
        "--acme-directory",
        &directory,
        "--acme-preflight",
        "skip",
    ];
    let allowed = ["--issuer-allow", "acme=*:*"];
    let mut controller = cluster.controller_with("one", &[&arguments[..], &allowed].concat())?;
    controller.line("holding the lease").await?;
    let mut object = tenant(
        OWNER,
        json!({"apex": "a.example.org", "gatewayClassName": "gatewright"}),
    );
    object["metadata"]["annotations"] = json!({"gatewright.io/issuer": "internal-ca"});
    server.put(object).await?;
    server.put(route(OWNER, "web", OWNER, &[HOST])).await?;
    until_issued(&cluster, OWNER, 1).await?;

    // A namespace of the same TenantGateway, and an unrelated one; each has a name of its own as
    // well.
    server.put(route(MEMBER, "web", OWNER, &[HOST])).await?;
    server.put(route(MEMBER, "own", OWNER, &[MEMBERS])).await?;
    server.put(gateway(&[HOST, STRANGERS])).await?;
    cluster
        .until(GATEWAY, "HTTPRoute", MEMBER, "web", |o| {
            let mut parents = o["status"]["parents"].as_array().into_iter().flatten();
            parents.any(|parent| {
                condition(parent, "Accepted").is_some_and(|c| c["reason"] == "HostnameConflict")
            })
        })
        .await?;
    cluster
        .until(GATEWAY, "Gateway", STRANGER, "edge", |o| {
            let listeners = o["status"]["listeners"].as_array().into_iter().flatten();
            let mut shop = listeners.filter(|listener| listener["name"] == "shop");
            shop.any(|listener| {
                condition(listener, "Conflicted").is_some_and(|c| c["reason"] == "HostnameConflict")
            })
        })
        .await?;
    until_issued(&cluster, OWNER, 2).await?;
    until_issued(&cluster, STRANGER, 1).await?;
    cluster.quiet().await?;
    assert_eq!(
        ca.counts().orders,
        BTreeMap::from([(STRANGERS.to_owned(), 1)])
    );
    assert_eq!(secrets(&cluster, MEMBER).await?, BTreeMap::new());
    let strangers = secrets(&cluster, STRANGER).await?;
    assert!(
        strangers.len() == 1 && strangers.keys().all(|name| name.contains("own")),
        "{strangers:?}"
    );
    let owners = secrets(&cluster, OWNER).await?;
    assert_eq!(owners.len(), 2, "{owners:?}");
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
