//! Many TenantGateways with ten hosts each: written from nothing, beside a plain client; a start with all of it there; and
//! a steady state, also while others rewrite what is theirs.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::cluster::Cluster;
use e2e::gatewright::Gatewright;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::site::{self, CERT_MANAGER, GATEWAY, namespace, objects, program, rewrite, route, tenant};
use crate::{AT_ONCE, Memory, processor, put_all, quiet, until};

/// A Gateway, a redirect, an Issuer and ten Certificates.
const OBJECTS: usize = 13;
const STEADY: Duration = Duration::from_secs(60);

pub(crate) async fn mass(tenants: usize) -> Result<()> {
    let cluster = site::cluster().await?;
    let mut inputs = Vec::new();
    for number in 0..tenants {
        let apex = format!("m{number}.example.org");
        namespace(&cluster.server, &space(number), &apex).await?;
        inputs.push(tenant(&space(number), json!({"apex": apex})));
        let host = |n: usize| format!("x{n}.{apex}");
        inputs.extend((0..10).map(|n| route(&space(number), &format!("r{n}"), &space(number), &[&host(n)])));
    }
    put_all(&cluster, inputs).await?;
    let began = Instant::now();
    let mut controller = cluster.controller("bench")?;
    until("all objects are there", async || {
        let written = cluster.writes()?;
        let objects = written.iter().filter(|r| !r.resource.contains('/') && r.code < 300);
        Ok(objects.count() >= tenants * OBJECTS)
    })
    .await?;
    let ours = began.elapsed();
    let used = processor(&controller)?;
    quiet(&cluster, 0).await?;
    let all = began.elapsed() - Duration::from_secs(6);
    println!(
        "{tenants} TenantGateways with 10 hosts, from nothing: objects in {:.1} s ({:.1} s of our processor), all {} writes in {:.0} s",
        ours.as_secs_f64(),
        used.as_secs_f64(),
        cluster.writes()?.len(),
        all.as_secs_f64()
    );
    // Whoever carries out Gateways says so, and every status is as it stays.
    let server = &cluster.server;
    let programmed =
        (0..tenants).map(|number| async move { program(server, "Gateway", &space(number), "cozystack").await });
    stream::iter(programmed).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    quiet(&cluster, 0).await?;
    println!("memory after it: {}", Memory::of(&controller)?);

    drop(controller);
    let before = cluster.writes()?.len();
    let began = Instant::now();
    controller = cluster.controller("bench")?;
    controller.line("the view is complete").await?;
    let ready = began.elapsed();
    controller.line("holding the lease").await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    println!(
        "a start with all of it there: ready in {:.1} s, {} writes in 30 s, {:.1} s of processor; memory: {}",
        ready.as_secs_f64(),
        cluster.writes()?.len() - before,
        processor(&controller)?.as_secs_f64(),
        Memory::of(&controller)?
    );
    steady(&cluster, &controller, tenants).await?;
    let plain = plain(&cluster, tenants).await?;
    println!(
        "a plain client writes the same objects in {:.1} s: {:.2}x",
        plain.as_secs_f64(),
        ours.as_secs_f64() / plain.as_secs_f64()
    );
    Ok(())
}

fn space(number: usize) -> String {
    format!("tenant-m{number}")
}

/// A minute in which nothing happens, and one in which others write what is theirs as fast as they can.
async fn steady(cluster: &Cluster, controller: &Gatewright, tenants: usize) -> Result<()> {
    let (before, used) = (cluster.writes()?.len(), processor(controller)?);
    tokio::time::sleep(STEADY).await;
    println!(
        "a minute without events: {} writes, {:.2} s of processor",
        cluster.writes()?.len() - before,
        (processor(controller)? - used).as_secs_f64()
    );
    let (before, used) = (cluster.writes()?.len(), processor(controller)?);
    let (began, mut edits) = (Instant::now(), 0);
    while began.elapsed() < STEADY {
        rewrite(&cluster.server, &space(edits % tenants), edits).await?;
        edits += 1;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    println!(
        "a minute with {} edits of others: {} writes, {:.2} s of processor",
        edits * 4,
        cluster.writes()?.len() - before,
        (processor(controller)? - used).as_secs_f64()
    );
    Ok(())
}

/// A plain client's time for the same objects under other names.
async fn plain(cluster: &Cluster, tenants: usize) -> Result<Duration> {
    let mut copies = Vec::new();
    for number in 0..tenants {
        for mut object in objects(&cluster.server, &space(number)).await? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let version =
                if matches!(object["kind"].as_str(), Some("Issuer" | "Certificate")) { CERT_MANAGER } else { GATEWAY };
            let meta = json!({"name": format!("copy-{name}"), "namespace": object["metadata"]["namespace"],
                "labels": object["metadata"]["labels"]});
            object = json!({"apiVersion": version, "kind": object["kind"], "metadata": meta, "spec": object["spec"]});
            if object["kind"] == "Gateway" {
                object["spec"]["gatewayClassName"] = json!("nobody");
            }
            copies.push(cluster.server.api_of(&object).await.map(|(api, name)| (api, name, object))?);
        }
    }
    let began = Instant::now();
    let writes = copies.iter().map(|(api, name, object)| async move {
        api.patch(name, &PatchParams::apply("plain").force(), &Patch::Apply(object)).await.map(|_| ())
    });
    stream::iter(writes).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    Ok(began.elapsed())
}
