//! What TenantGateways cost an API server: writes and time for one added host, many TenantGateways from nothing, and a
//! start with all of it there.
//!
//! `cargo bench -p e2e --bench kubernetes [-- hosts|mass [TENANTS]]`. API server and controller share the machine, so times
//! are told as multiples of what a plain client needs for the same in the same run; counts are exact.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

#[allow(dead_code, unreachable_pub, reason = "the tests use the rest")]
#[path = "../e2e/tests/kube_tenancy/site.rs"]
mod site;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use e2e::apiserver::Request;
use e2e::cluster::Cluster;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use site::{GATEWAY, namespace, objects, owned, route, tenant};

/// Writes at the same time, as many as the controller makes.
const AT_ONCE: usize = 8;
const ROUNDS: usize = 5;
const HOSTS: [usize; 3] = [10, 60, 1000];
const TENANTS: usize = 1000;

fn main() -> Result<()> {
    let wish: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    // The API server dies with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tenants = wish.get(1).map_or(Ok(TENANTS), |text| text.parse()).context("a number of TenantGateways")?;
    match wish.first().map(String::as_str) {
        Some("hosts") => runtime.block_on(hosts()),
        Some("mass") => runtime.block_on(mass(tenants)),
        Some(other) => bail!("nothing is called {other}: expected hosts or mass"),
        None => {
            runtime.block_on(hosts())?;
            runtime.block_on(mass(tenants))
        }
    }
}

/// Puts objects, several at a time.
async fn put_all(cluster: &Cluster, all: Vec<Value>) -> Result<()> {
    let puts = all.into_iter().map(|object| async { cluster.server.put(object).await.map(|_| ()) });
    stream::iter(puts).buffer_unordered(AT_ONCE).try_collect().await
}

/// Waits until something holds, however long the machine takes.
async fn until(what: &str, good: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(900);
    while !good().await? {
        if Instant::now() > deadline {
            bail!("not in time: {what}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// What was written since, once nothing was written for longer than a status waits.
async fn quiet(cluster: &Cluster, since: usize) -> Result<Vec<Request>> {
    let mut before = cluster.writes()?.len();
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = cluster.writes()?;
        if now.len() == before {
            return Ok(now[since..].to_vec());
        }
        before = now.len();
    }
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

/// One host added to a TenantGateway that has many.
async fn hosts() -> Result<()> {
    println!("one host added, with cert-manager's objects");
    println!(
        "{:>6} {:>8} {:>12} {:>10} {:>12} {:>12}  what",
        "hosts", "writes", "object", "bare", "to objects", "multiple"
    );
    let cluster = site::cluster().await?;
    let mut controller = cluster.controller("bench")?;
    controller.line("holding the lease").await?;
    for hosts in HOSTS {
        let space = format!("tenant-h{hosts}");
        let apex = format!("h{hosts}.example.org");
        namespace(&cluster.server, &space, &apex).await?;
        cluster.server.put(tenant(&space, json!({"apex": apex}))).await?;
        let host = |number: usize| format!("x{number}.{apex}");
        let routes = (0..hosts).map(|n| route(&space, &format!("r{n}"), &space, &[&host(n)])).collect();
        put_all(&cluster, routes).await?;
        let certificates = async || {
            let all = owned(&cluster.server, &space).await?;
            anyhow::Ok(all.iter().filter(|id| id.starts_with("Certificate")).count())
        };
        until("all hosts are there", async || Ok(certificates().await? == hosts)).await?;
        quiet(&cluster, 0).await?;
        let (mut counts, mut times) = (Vec::new(), Vec::new());
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for round in 0..ROUNDS {
            let before = cluster.writes()?.len();
            let name = format!("r{}", hosts + round);
            cluster.server.put(route(&space, &name, &space, &[&host(hosts + round)])).await?;
            until("it is there", async || Ok(certificates().await? == hosts + round + 1)).await?;
            let written = quiet(&cluster, before).await?;
            times.push(event_to_objects(&cluster, &format!("{space}/{name}"), &written)?);
            counts.push(written.len());
            for request in written {
                *kinds.entry(request.resource).or_default() += 1;
            }
        }
        let (bytes, bare) = bare(&cluster, &space).await?;
        let event = median(times);
        counts.sort_unstable();
        let ratio = event.as_secs_f64() / bare.as_secs_f64();
        let what: Vec<String> =
            kinds.iter().map(|(kind, count)| format!("{kind} {:.1}", *count as f64 / ROUNDS as f64)).collect();
        println!(
            "{hosts:>6} {:>8} {:>10} B {:>7} ms {:>9} ms {ratio:>11.1}x  {}",
            counts[ROUNDS / 2],
            bytes,
            bare.as_millis(),
            event.as_millis(),
            what.join(", ")
        );
    }
    Ok(())
}

/// From the answer to whoever wrote the route to the answer to the last object that was written for it.
fn event_to_objects(cluster: &Cluster, route: &str, written: &[Request]) -> Result<Duration> {
    let all = cluster.server.requests()?;
    let made = all.iter().find(|r| r.resource == "httproutes" && r.object == route && r.code == 201);
    let made = made.context("the route was written")?.at;
    let last = written.iter().filter(|r| !r.resource.ends_with("/status")).map(|r| r.at).max();
    Ok(last.context("objects were written")?.duration_since(made).unsigned_abs())
}

/// What a plain client needs to write the object with the host once: as large, and one listener different.
async fn bare(cluster: &Cluster, space: &str) -> Result<(usize, Duration)> {
    let shards = objects(&cluster.server, space).await?;
    let shards = shards.into_iter().filter(|object| object["spec"]["listeners"].is_array());
    let mut largest = shards.max_by_key(|object| object["spec"].to_string().len()).context("a Gateway")?;
    let kind = largest["kind"].as_str().unwrap_or_default().to_owned();
    largest["metadata"] = json!({"name": "bare", "namespace": space});
    largest["apiVersion"] = json!(GATEWAY);
    largest.as_object_mut().context("an object")?.remove("status");
    let api = cluster.server.api(GATEWAY, &kind, space).await?;
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        largest["spec"]["listeners"][0]["port"] = json!(1000 + round);
        let began = Instant::now();
        api.patch("bare", &PatchParams::apply("bare").force(), &Patch::Apply(&largest)).await?;
        times.push(began.elapsed());
    }
    api.delete("bare", &Default::default()).await?;
    Ok((largest["spec"].to_string().len(), median(times)))
}

/// Many TenantGateways with ten hosts each: written from nothing, beside a plain client; then a start with all of it there.
async fn mass(tenants: usize) -> Result<()> {
    let cluster = site::cluster().await?;
    let mut inputs = Vec::new();
    for number in 0..tenants {
        let (space, apex) = (format!("tenant-m{number}"), format!("m{number}.example.org"));
        namespace(&cluster.server, &space, &apex).await?;
        inputs.push(tenant(&space, json!({"apex": apex})));
        let host = |n: usize| format!("x{n}.{apex}");
        inputs.extend((0..10).map(|n| route(&space, &format!("r{n}"), &space, &[&host(n)])));
    }
    put_all(&cluster, inputs).await?;
    let expected = tenants * 13;
    let began = Instant::now();
    let mut controller = cluster.controller("bench")?;
    let objects = async || {
        let written = cluster.writes()?;
        anyhow::Ok(written.iter().filter(|r| !r.resource.contains('/') && r.code < 300).count())
    };
    let deadline = Instant::now() + Duration::from_secs(1800);
    while objects().await? < expected && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let ours = began.elapsed();
    quiet(&cluster, 0).await?;
    let all = cluster.writes()?;
    println!(
        "{tenants} TenantGateways with 10 hosts, from nothing: {} writes, objects in {:.1} s",
        all.len(),
        ours.as_secs_f64()
    );
    let plain = plain(&cluster, tenants).await?;
    println!(
        "a plain client writes the same objects in {:.1} s: {:.2}x",
        plain.as_secs_f64(),
        ours.as_secs_f64() / plain.as_secs_f64()
    );
    drop(controller);
    let before = cluster.writes()?.len();
    let began = Instant::now();
    controller = cluster.controller("bench")?;
    controller.line("the view is complete").await?;
    let ready = began.elapsed();
    controller.line("holding the lease").await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", controller.pid()))?;
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    println!(
        "a start with all of it there: ready in {:.1} s, {} writes in 30 s, {resident}",
        ready.as_secs_f64(),
        cluster.writes()?.len() - before
    );
    Ok(())
}

/// A plain client's time for the same objects under other names.
async fn plain(cluster: &Cluster, tenants: usize) -> Result<Duration> {
    let mut copies = Vec::new();
    for number in 0..tenants {
        for mut object in objects(&cluster.server, &format!("tenant-m{number}")).await? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let version = if matches!(object["kind"].as_str(), Some("Issuer" | "Certificate")) {
                site::CERT_MANAGER
            } else {
                GATEWAY
            };
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
