//! A hostname moves to another namespace: the previous owner keeps no certificate of ours for it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use e2e::cluster::{ACCOUNT, Cluster, condition, tls_secret};
use e2e::gatewright::Gatewright;
use e2e::tenants::until;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch};
use serde_json::{Value, json};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const PORT: u16 = 8443;
/// The hostnames that move from bob to alice.
const MOVED: [&str; 2] = ["shop.example.org", "own.example.org"];

/// A Gateway of fleet Shared: hosts with certificates of the internal CA, and hosts with a Secret
/// of the tenant's own.
async fn gateway(cluster: &Cluster, namespace: &str, issued: &[&str], own: &[&str]) -> Result<()> {
    let listener = |host: &str, tls: Value| {
        let name = host.split('.').next().unwrap_or_default();
        json!({"name": name, "protocol": "HTTPS", "port": PORT, "hostname": host, "tls": tls})
    };
    let issued = issued.iter().map(|host| {
        listener(
            host,
            json!({"options": {"gatewright.io/issuer": "internal-ca"}}),
        )
    });
    let own = own
        .iter()
        .map(|host| listener(host, json!({"certificateRefs": [{"name": "own"}]})));
    let listeners: Vec<Value> = issued.chain(own).collect();
    let object = json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": namespace},
        "spec": {"gatewayClassName": "gatewright", "listeners": listeners}});
    cluster.server.put(object).await.map(drop)
}

/// Returns the Secret for a host of a namespace: issued by us, or its own.
async fn secret(cluster: &Cluster, namespace: &str, host: &str) -> Result<Option<Secret>> {
    let api: Api<Secret> = Api::namespaced(cluster.server.client(), namespace);
    let name = host.split('.').next().unwrap_or_default();
    Ok(api
        .list(&Default::default())
        .await?
        .items
        .into_iter()
        .find(|secret| {
            let is_tls = secret.type_.as_deref() == Some("kubernetes.io/tls");
            is_tls
                && secret
                    .metadata
                    .name
                    .as_deref()
                    .is_some_and(|all| all.starts_with(name))
        }))
}

fn key(secret: &Secret) -> &[u8] {
    secret
        .data
        .as_ref()
        .and_then(|data| data.get("tls.key"))
        .map_or(&[], |key| &key.0)
}

async fn until_issued(cluster: &Cluster, namespace: &str, host: &str) -> Result<Secret> {
    until(
        &format!("{namespace} has a certificate for {host}"),
        async || {
            Ok(secret(cluster, namespace, host)
                .await?
                .is_some_and(|secret| !key(&secret).is_empty()))
        },
    )
    .await?;
    secret(cluster, namespace, host)
        .await?
        .context("there is one")
}

/// Waits until the listener of a host has this condition and reason.
async fn told(
    cluster: &Cluster,
    namespace: &str,
    host: &str,
    kind: &str,
    reason: &str,
) -> Result<()> {
    let name = host.split('.').next().unwrap_or_default();
    cluster
        .until(GATEWAY, "Gateway", namespace, "edge", |o| {
            let all = o["status"]["listeners"].as_array().into_iter().flatten();
            let mut own = all.filter(|listener| listener["name"] == name);
            own.any(|listener| condition(listener, kind).is_some_and(|c| c["reason"] == reason))
        })
        .await
        .map(drop)
}

async fn controller(cluster: &Cluster, identity: &str) -> Result<Gatewright> {
    let arguments = ["--hostname-hold", "0", "--issuer-allow", "internal-ca=*:*"];
    let mut controller = cluster.controller_with(identity, &arguments)?;
    controller.line("holding the lease").await?;
    Ok(controller)
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn the_secret_of_a_listener_that_lost_its_hostname_to_another_namespace_is_emptied()
-> Result<()> {
    let cluster = e2e::tenants::cluster().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    for namespace in ["alice", "bob"] {
        server
            .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
            .await?;
        server
            .put(tls_secret(namespace, "own", &[MOVED[1]])?)
            .await?;
    }
    let one = controller(&cluster, "one").await?;
    gateway(
        &cluster,
        "bob",
        &[MOVED[0], "stays.example.org"],
        &[MOVED[1]],
    )
    .await?;
    let [shop, stays] =
        [MOVED[0], "stays.example.org"].map(|host| until_issued(&cluster, "bob", host));
    let (shop, stays) = (shop.await?, stays.await?);
    let own = until_issued(&cluster, "bob", "own.example.org").await?;
    // A certificate of a host that is only removed is kept: nobody else has the name.
    gateway(&cluster, "bob", &["stays.example.org"], &[]).await?;
    cluster.quiet().await?;
    assert_eq!(
        secret(&cluster, "bob", MOVED[0]).await?.as_ref().map(key),
        Some(key(&shop))
    );

    // Alice has both names, and bob claims them again while the controller is down.
    gateway(&cluster, "alice", &[MOVED[0]], &[MOVED[1]]).await?;
    let alices = until_issued(&cluster, "alice", MOVED[0]).await?;
    told(&cluster, "alice", MOVED[1], "Accepted", "Accepted").await?;
    drop(one);
    gateway(
        &cluster,
        "bob",
        &[MOVED[0], "stays.example.org"],
        &[MOVED[1]],
    )
    .await?;
    let two = controller(&cluster, "two").await?;
    told(&cluster, "bob", MOVED[0], "Conflicted", "HostnameConflict").await?;
    let is_empty = async || {
        Ok(secret(&cluster, "bob", MOVED[0])
            .await?
            .is_some_and(|secret| key(&secret).is_empty()))
    };
    until(
        "bob's certificate for alice's hostname is withdrawn",
        is_empty,
    )
    .await?;
    let empty = secret(&cluster, "bob", MOVED[0])
        .await?
        .context("it is there")?;
    let why = empty
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get("gatewright.io/withdrawn").cloned());
    assert_eq!(
        why.as_deref(),
        Some("another namespace owns shop.example.org")
    );
    assert!(
        empty
            .data
            .iter()
            .flatten()
            .all(|(_, part)| part.0.is_empty())
    );
    // Bob's own Secret, his other hosts and alice's stay unchanged.
    cluster.quiet().await?;
    for (namespace, host, before) in [
        ("bob", MOVED[1], &own),
        ("bob", "stays.example.org", &stays),
        ("alice", MOVED[0], &alices),
    ] {
        let now = secret(&cluster, namespace, host)
            .await?
            .context("it is there")?;
        assert_eq!(
            now.metadata.resource_version, before.metadata.resource_version,
            "{namespace} {host}"
        );
    }

    // A Secret that somebody changed is not ours any more.
    let api: Api<Secret> = Api::namespaced(server.client(), "bob");
    let name = empty.metadata.name.clone().context("it has a name")?;
    let data = own.data.clone().context("it has data")?;
    api.patch(
        &name,
        &Default::default(),
        &Patch::Merge(&json!({"data": data})),
    )
    .await?;
    cluster.quiet().await?;
    assert_eq!(
        secret(&cluster, "bob", MOVED[0]).await?.as_ref().map(key),
        Some(key(&own))
    );
    // Restored, including annotations, it is ours again, and withdrawn again.
    let annotations: BTreeMap<_, _> = shop
        .metadata
        .annotations
        .clone()
        .context("it has annotations")?;
    let restored = json!({"metadata": {"annotations": annotations}, "data": shop.data});
    api.patch(&name, &Default::default(), &Patch::Merge(&restored))
        .await?;
    until("it is withdrawn again", is_empty).await?;

    // Alice's Gateway is deleted, and bob gets the name and a new certificate, in the same Secret.
    server
        .api(GATEWAY, "Gateway", "alice")
        .await?
        .delete("edge", &Default::default())
        .await?;
    let again = until_issued(&cluster, "bob", MOVED[0]).await?;
    assert_eq!(again.metadata.name, shop.metadata.name);
    let annotations = again.metadata.annotations.context("it has annotations")?;
    assert!(
        !annotations.contains_key("gatewright.io/withdrawn"),
        "{annotations:?}"
    );
    let deleted: Vec<_> = cluster
        .writes()?
        .into_iter()
        .filter(|w| w.user == ACCOUNT && w.verb == "delete")
        .collect();
    assert!(
        deleted.iter().all(|write| write.resource != "secrets"),
        "{deleted:?}"
    );
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    drop(two);
    Ok(())
}
