//! The record of ownership has a quota for each namespace: hostnames beyond it are refused before
//! they are proposed, so that nobody fills the ConfigMaps for others.

use anyhow::{Context, Result, ensure};
use e2e::cluster::{Cluster, NAMESPACE, is_true};
use e2e::port::free_port;
use e2e::tenants::until;
use serde_json::{Value, json};

use super::{GATEWAY, change, gateway, tenant, told};

/// The hostnames that mallory claims, of some 800 bytes of the record each.
const CLAIMED: usize = 40;
/// A label by which the configuration gives a namespace another quota.
const TIER: &str = "example.org/tier";

/// A hostname of 250 bytes.
fn long(number: usize) -> String {
    let label = "m".repeat(63);
    let first = format!("{number:0>41}");
    format!("{first}.{label}.{label}.{label}.mallory.example")
}

async fn claim(cluster: &Cluster, port: u16) -> Result<()> {
    let server = &cluster.server;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mallory"}}))
        .await?;
    let listener = |number: usize| json!({"name": format!("l{number}"), "protocol": "HTTP", "port": port, "hostname": long(number)});
    let listeners: Vec<Value> = (0..CLAIMED).map(listener).collect();
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "mallory"},
            "spec": {"gatewayClassName": "gatewright", "listeners": listeners}}))
        .await?;
    Ok(())
}

async fn label(cluster: &Cluster, tier: Option<&str>) -> Result<()> {
    let namespaces = cluster.server.api("v1", "Namespace", "").await?;
    let patch = json!({"metadata": {"labels": {TIER: tier}}});
    let patch = kube::api::Patch::Merge(&patch);
    namespaces
        .patch("mallory", &Default::default(), &patch)
        .await?;
    Ok(())
}

/// The bytes of mallory's entries, and their number.
async fn recorded(cluster: &Cluster) -> Result<(usize, usize)> {
    let maps = cluster.server.api("v1", "ConfigMap", NAMESPACE).await?;
    let (mut bytes, mut count) = (0, 0);
    for map in maps.list(&Default::default()).await? {
        let map = serde_json::to_value(map)?;
        let data = map["data"].as_object().into_iter().flatten();
        for (key, value) in data {
            let value = value.as_str().unwrap_or_default();
            if value.contains("\"namespace\":\"mallory\"") && key.contains(".mallory.example") {
                bytes += 2 * key.len() + value.len();
                count += 1;
            }
        }
    }
    Ok((bytes, count))
}

/// Waits until mallory has as many hostnames as fit so many KiB, in the conditions and in the
/// record. Returns their number.
async fn until_fit(cluster: &Cluster, kib: usize) -> Result<usize> {
    let settled =
        |object: &Value| counts(object).is_some_and(|(had, beyond)| had + beyond == CLAIMED);
    let fits = |count: usize| count * 700 <= kib << 10 && (count + 1) * 900 > kib << 10;
    cluster
        .until(GATEWAY, "Gateway", "mallory", "edge", |object| {
            settled(object) && counts(object).is_some_and(|(had, _)| fits(had))
        })
        .await
        .with_context(|| format!("{kib} KiB"))?;
    until("the record has what the conditions say", async || {
        Ok(fits(recorded(cluster).await?.1))
    })
    .await?;
    let (bytes, count) = recorded(cluster).await?;
    ensure!(
        bytes <= kib << 10,
        "{count} entries have {bytes} bytes, and {kib} KiB are allowed"
    );
    Ok(count)
}

/// The listeners of a Gateway that are accepted, and those that are beyond the quota.
fn counts(object: &Value) -> Option<(usize, usize)> {
    let listeners = object["status"]["listeners"].as_array()?;
    let had = listeners
        .iter()
        .filter(|listener| is_true(listener, "Accepted"));
    let beyond = listeners
        .iter()
        .filter(|listener| told(listener, "Accepted").0 == "LimitReached");
    Some((had.count(), beyond.count()))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_namespace_has_so_many_kib_of_the_record_and_others_are_served() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster
        .server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let overrides = json!([
        {"namespaces": {"matchLabels": {TIER: "gold"}}, "limits": {"recordKib": 16}},
        {"namespaces": {"matchLabels": {TIER: "tin"}}, "limits": {"recordKib": 4}},
    ]);
    let limit = [
        "--set",
        "limits.namespace.recordKib=8",
        "--set",
        &format!("limits.overrides={overrides}"),
    ];
    let mut controller = cluster.controller_with("one", &limit)?;
    controller.line("xDS at").await?;
    let (tls, plain) = (free_port()?, free_port()?);
    tenant(
        &cluster,
        "alice",
        "gatewright",
        tls,
        &["first.alice.example"],
    )
    .await?;
    let (_envoy, _keys) = cluster.envoy("envoy-a").await?;

    claim(&cluster, plain).await?;
    let few = until_fit(&cluster, 8).await?;
    let gateways = cluster.server.api(GATEWAY, "Gateway", "mallory").await?;
    let object = serde_json::to_value(gateways.get("edge").await?)?;
    let listeners = object["status"]["listeners"].as_array();
    let beyond = listeners
        .into_iter()
        .flatten()
        .map(|listener| told(listener, "Accepted"))
        .find(|(reason, _)| reason == "LimitReached");
    let (_, text) = beyond.context("one is beyond the quota")?;
    for part in [
        "limits.namespace.recordKib, 8 KiB of the record of ownership",
        "fewer or shorter hostnames need less",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }

    // A new hostname of another namespace.
    let hosts = ["first.alice.example", "second.alice.example"];
    let changed = gateway("alice", "gatewright", tls, &hosts)["spec"]["listeners"].clone();
    change(&cluster, "alice", json!({"spec": {"listeners": changed}})).await?;
    let both = |object: &Value| {
        let listeners = object["status"]["listeners"].as_array();
        listeners.is_some_and(|all| all.len() == 2 && all.iter().all(|l| is_true(l, "Accepted")))
    };
    cluster
        .until(GATEWAY, "Gateway", "alice", "edge", both)
        .await
        .context("alice has her second hostname")?;

    // Labels of the namespace.
    label(&cluster, Some("gold")).await?;
    let more = until_fit(&cluster, 16).await?;
    label(&cluster, Some("tin")).await?;
    let less = until_fit(&cluster, 4).await?;
    assert!(less < few && few < more, "{less} {few} {more}");
    label(&cluster, None).await?;
    until_fit(&cluster, 8).await?;

    // Another process that starts with the record has the same.
    drop(controller);
    let mut controller = cluster.controller_with("two", &limit)?;
    controller.line("xDS at").await?;
    until_fit(&cluster, 8).await?;
    Ok(())
}
