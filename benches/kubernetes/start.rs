//! A start with everything there: many TenantGateways with ten hosts each, as the controller leaves them. It carries out one
//! of them; the others are copies of what the API server then keeps, since writing them takes minutes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cluster::Cluster;
use futures::{StreamExt, TryStreamExt, stream};
use gatewright::tenancy::names;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::{Value, json};

use crate::site::{self, program, route, tenant};
use crate::{AT_ONCE, Memory, processor, put_all, quiet, until};

/// What is copied, as it stands in names. Its length is that of every other.
const FIRST: &str = "m00000";
const HOSTS: usize = 10;

pub(crate) async fn start(tenants: usize) -> Result<()> {
    let cluster = site::cluster().await?;
    fill(&cluster, tenants).await?;
    let before = cluster.writes()?.len();
    let began = Instant::now();
    let mut controller = cluster.controller("bench")?;
    controller.line("the view is complete").await?;
    let (ready, at_ready) = (began.elapsed(), Memory::of(&controller)?);
    controller.line("holding the lease").await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    println!(
        "{tenants} TenantGateways with 10 hosts, a start with all of it there: ready in {:.1} s, {} writes in 30 s, {:.1} s of processor",
        ready.as_secs_f64(),
        cluster.writes()?.len() - before,
        processor(&controller)?.as_secs_f64()
    );
    println!("memory when ready: {at_ready}");
    println!("memory 30 s later: {}", Memory::of(&controller)?);
    Ok(())
}

/// Has one TenantGateway carried out, and copies everything of it.
async fn fill(cluster: &Cluster, tenants: usize) -> Result<()> {
    let (space, apex) = (format!("tenant-{FIRST}"), format!("{FIRST}.example.org"));
    site::namespace(&cluster.server, &space, &apex).await?;
    let mut inputs = vec![tenant(&space, json!({"apex": apex}))];
    inputs.extend((0..HOSTS).map(|n| route(&space, &format!("r{n}"), &space, &[&format!("x{n}.{apex}")])));
    put_all(cluster, inputs).await?;
    let controller = cluster.controller("first")?;
    until("its Gateway is there", async || Ok(!site::owned(&cluster.server, &space).await?.is_empty())).await?;
    quiet(cluster, 0).await?;
    program(&cluster.server, "Gateway", &space, "cozystack").await?;
    quiet(cluster, 0).await?;
    drop(controller);

    let namespaces: Api<Namespace> = Api::all(cluster.server.client());
    let first = namespaces.get(&space).await?.metadata;
    let (labels, annotations) = (labels_of(first.labels), labels_of(first.annotations));
    let creates = (1..tenants).map(|number| {
        let metadata = ObjectMeta {
            name: Some(copied(&space, number)),
            labels: Some(labels.iter().map(|(key, value)| (key.clone(), copied(value, number))).collect()),
            annotations: Some(annotations.iter().map(|(key, value)| (key.clone(), copied(value, number))).collect()),
            ..ObjectMeta::default()
        };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let namespaces = namespaces.clone();
        async move { namespaces.create(&PostParams::default(), &namespace).await.map(|_| ()) }
    });
    stream::iter(creates).buffer_unordered(AT_ONCE).try_collect::<()>().await?;

    let mut etcd = cluster.server.etcd().await?;
    let mut templates = Vec::new();
    for (key, value) in etcd.all("/registry/").await? {
        // Custom resources are kept as JSON, everything else is not.
        if key.contains(&space) && value.starts_with(b"{") {
            let value = String::from_utf8(value)?;
            let uid = serde_json::from_str::<Value>(&value)?["metadata"]["uid"].as_str().map(str::to_owned);
            templates.push((key, value, uid.context("an object without a UID")?));
        }
    }
    ensure!(templates.len() > 20, "{} objects were kept of one TenantGateway", templates.len());
    let listener = |host: usize, number: usize| names::host_listener(&copied(&format!("x{host}.{apex}"), number));
    for number in 1..tenants {
        let hosts: Vec<_> = (0..HOSTS).map(|host| (hash(&listener(host, 0)), hash(&listener(host, number)))).collect();
        let of_one = templates.iter().map(|(key, value, _)| {
            let mut value = copied(value, number);
            for (_, _, uid) in &templates {
                // All that refers to one of them refers to its copy.
                value = value.replace(uid, &format!("{}{number:012x}", &uid[..24]));
            }
            let mut key = copied(key, number);
            for (first, its) in &hosts {
                value = value.replace(first, its);
                key = key.replace(first, its);
            }
            (key, value)
        });
        etcd.put(&of_one.collect::<Vec<_>>()).await?;
    }
    Ok(())
}

/// What stands for a hostname in the names of its objects.
fn hash(listener: &str) -> String {
    listener.rsplit('-').next().unwrap_or_default().to_owned()
}

fn labels_of(all: Option<std::collections::BTreeMap<String, String>>) -> Vec<(String, String)> {
    let mine = |(key, _): &(String, String)| !key.contains("kubernetes.io/");
    all.into_iter().flatten().filter(mine).collect()
}

fn copied(text: &str, number: usize) -> String {
    text.replace(FIRST, &format!("m{number:05}"))
}
