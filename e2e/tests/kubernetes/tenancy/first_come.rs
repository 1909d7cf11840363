//! The first claimant of a hostname keeps it, over restarts and changes of the leader:
//! `tenancy.hostnameClaims: FirstCome`.

use anyhow::{Context, Result};
use e2e::cluster::{Cluster, NAMESPACE, condition};
use e2e::gatewright::Gatewright;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch};
use serde_json::{Value, json};

use e2e::tenants::{
    CLAIMS, GATEWAY, cluster, member, namespace, quiet, route, tenant, until, until_ready,
};

const OWNER: &str = "tenant-first";
const EARLY: &str = "tenant-first-z";
const LATE: &str = "tenant-first-b";
const STRANGER: &str = "tenant-first-a";
const HOST: &str = "x.first.example.org";

async fn controller(cluster: &Cluster, identity: &str) -> Result<Gatewright> {
    let mut controller =
        cluster.controller_with(identity, &["--set", "tenancy.hostnameClaims=FirstCome"])?;
    controller.line("holding the lease").await?;
    Ok(controller)
}

/// Returns the reason of a route's claims in its status.
fn verdict(route: &Value) -> Option<&str> {
    let parents = route["status"]["parents"].as_array()?;
    let ours = parents
        .iter()
        .find(|parent| parent["controllerName"] == CLAIMS)?;
    condition(ours, "Accepted")?["reason"].as_str()
}

async fn until_told(cluster: &Cluster, space: &str, name: &str, reason: &str) -> Result<Value> {
    let current = |o: &Value| {
        let ours = o["status"]["parents"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|p| p["controllerName"] == CLAIMS);
        ours.is_some_and(|ours| {
            ours["conditions"][0]["observedGeneration"] == o["metadata"]["generation"]
        })
    };
    cluster
        .until(GATEWAY, "HTTPRoute", space, name, |o| {
            verdict(o) == Some(reason) && current(o)
        })
        .await
}

/// Returns the records of hostnames among tenants, with their owners.
async fn records(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.server.client(), NAMESPACE);
    let all = maps
        .list(&ListParams::default().labels("gatewright.io/keeps=hostname-claims"))
        .await?
        .items;
    let lines = all.iter().flat_map(|map| map.data.iter().flatten());
    let mut entries = Vec::new();
    for (_, line) in lines {
        let line: Value = serde_json::from_str(line).with_context(|| line.clone())?;
        if line["tenants"] != true {
            continue;
        }
        let [host, mut owner] = ["hostname", "namespace"]
            .map(|field| line[field].as_str().unwrap_or_default().to_owned());
        if line["released"].is_u64() {
            owner += " (reserved)";
        }
        entries.push((host, owner));
    }
    entries.sort();
    Ok(entries)
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter()
        .map(|(host, owner)| ((*host).to_owned(), (*owner).to_owned()))
        .collect()
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn the_first_claimant_keeps_a_hostname_over_restarts_and_leaders() -> Result<()> {
    let cluster = cluster().await?;
    let server = &cluster.server;
    namespace(server, OWNER, "first.example.org").await?;
    for space in [EARLY, LATE] {
        member(server, space, OWNER, "first.example.org").await?;
    }
    let one = controller(&cluster, "one").await?;
    server
        .put(tenant(OWNER, json!({"apex": "first.example.org"})))
        .await?;
    server.put(route(EARLY, "web", OWNER, &[HOST])).await?;
    until_told(&cluster, EARLY, "web", "Accepted").await?;
    until_ready(&cluster, OWNER, "GatewayNotAccepted").await?;
    // The smaller name comes too late, and has that status at once: it was never accepted.
    server.put(route(LATE, "web", OWNER, &[HOST])).await?;
    let lost = until_told(&cluster, LATE, "web", "HostnameConflict").await?;
    let since = lost["metadata"]["creationTimestamp"]
        .as_str()
        .context("it has one")?
        .to_owned();
    assert_eq!(records(&cluster).await?, pairs(&[(HOST, EARLY)]));
    let before = cluster.writes()?.len();
    quiet(&cluster, before).await?;
    let told_to_late = cluster
        .writes()?
        .iter()
        .filter(|w| w.object == format!("{LATE}/web"))
        .count();
    assert_eq!(told_to_late, 1, "what is told of a claim is told once");

    // The record is deleted: nobody loses anything, and it is written again.
    let before = cluster.writes()?.len();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), NAMESPACE);
    for map in maps
        .list(&ListParams::default().labels("gatewright.io/keeps=hostname-claims"))
        .await?
        .items
    {
        maps.delete(
            &map.metadata.name.context("it has a name")?,
            &Default::default(),
        )
        .await?;
    }
    until("the record is back", async || {
        Ok(records(&cluster).await? == pairs(&[(HOST, EARLY)]))
    })
    .await?;
    let written = quiet(&cluster, before).await?;
    assert!(
        written.len() == 1 && written[0].resource == "configmaps",
        "{written:#?}"
    );

    // A restart decides the same and writes nothing, and so does the next change.
    drop(one);
    let before = cluster.writes()?.len();
    let two = controller(&cluster, "two").await?;
    assert_eq!(quiet(&cluster, before).await?, []);
    let routes = server.api(GATEWAY, "HTTPRoute", LATE).await?;
    let hosts = json!({"spec": {"hostnames": [HOST, "only.first.example.org"]}});
    routes
        .patch("web", &Default::default(), &Patch::Merge(&hosts))
        .await?;
    let lost = until_told(&cluster, LATE, "web", "HostnameConflict").await?;
    assert_eq!(lost["metadata"]["creationTimestamp"], since);
    until("the other name is recorded", async || {
        Ok(records(&cluster).await? == pairs(&[("only.first.example.org", LATE), (HOST, EARLY)]))
    })
    .await?;

    // Another leader, which has watched all the time, decides by the same record.
    let mut three = cluster
        .replica_with_xds_and("three", &["--set", "tenancy.hostnameClaims=FirstCome"])?
        .0;
    three.line("the view is complete").await?;
    drop(two);
    three.line("holding the lease").await?;
    server
        .put(route(EARLY, "more", OWNER, &["only.first.example.org"]))
        .await?;
    until_told(&cluster, EARLY, "more", "HostnameConflict").await?;
    until_told(&cluster, LATE, "web", "HostnameConflict").await?;

    // An owner without a claim loses the name, and the next claimant gets it.
    server
        .api(GATEWAY, "HTTPRoute", EARLY)
        .await?
        .delete("web", &Default::default())
        .await?;
    until_told(&cluster, LATE, "web", "Accepted").await?;
    routes.delete("web", &Default::default()).await?;
    until_told(&cluster, EARLY, "more", "Accepted").await?;
    let reserved = format!("{LATE} (reserved)");
    until("what nobody claims any more is reserved", async || {
        Ok(records(&cluster).await?
            == pairs(&[("only.first.example.org", EARLY), (HOST, &reserved)]))
    })
    .await?;

    // Another claimant, whose label grants it that name as well, does not get it, and has the
    // reason in its status; the previous owner does.
    member(server, STRANGER, OWNER, HOST).await?;
    server.put(route(STRANGER, "web", OWNER, &[HOST])).await?;
    let lost = until_told(&cluster, STRANGER, "web", "HostnameConflict").await?;
    assert!(
        lost["status"]
            .to_string()
            .contains("tenancy.hostnameHoldHours"),
        "{lost}"
    );
    server.put(route(EARLY, "again", OWNER, &[HOST])).await?;
    until_told(&cluster, EARLY, "again", "Accepted").await?;
    until("it is recorded", async || {
        Ok(records(&cluster).await? == pairs(&[("only.first.example.org", EARLY), (HOST, EARLY)]))
    })
    .await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
