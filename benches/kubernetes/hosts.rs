//! One host added to a TenantGateway with many: writes, bytes, time and processor time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::apiserver::Request;
use e2e::cluster::Cluster;
use e2e::gatewright::Gatewright;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::{median, millis, processor, put_all, quiet, until};
use e2e::tenants::{self, CERT_MANAGER, GATEWAY, namespace, objects, route, tenant};

const ROUNDS: usize = 5;
const HOSTS: [usize; 3] = [10, 60, 1000];
/// Time for which the processor time of an idle controller is measured.
const IDLE: Duration = Duration::from_secs(10);

/// Prints a row for each number of hosts, with and without cert-manager's objects.
pub(crate) async fn hosts() -> Result<()> {
    println!("one host added");
    println!(
        "{:>6} {:<12} {:>6} {:>10} {:>8} {:>10} {:>8} {:>8}  what",
        "hosts", "issuer", "writes", "object", "bare", "objects in", "multiple", "cpu"
    );
    let cluster = tenants::cluster().await?;
    let mut controller = cluster.controller("bench")?;
    controller.line("holding the lease").await?;
    for (number, hosts) in HOSTS.into_iter().enumerate() {
        for issuer in ["cert-manager", "internal-ca"] {
            let space = format!("tenant-{issuer}-{number}");
            row(&cluster, &controller, &space, issuer, hosts).await?;
        }
    }
    Ok(())
}

async fn row(
    cluster: &Cluster,
    controller: &Gatewright,
    space: &str,
    issuer: &str,
    hosts: usize,
) -> Result<()> {
    let apex = format!("{space}.example.org");
    namespace(&cluster.server, space, &apex).await?;
    let mut object = tenant(space, json!({"apex": apex}));
    if issuer != "cert-manager" {
        object["metadata"]["annotations"] = json!({"gatewright.io/issuer": issuer});
    }
    cluster.server.put(object).await?;
    fn host(number: usize, apex: &String) -> String {
        format!("x{number}.{apex}")
    }
    put_all(
        cluster,
        (0..hosts)
            .map(|n| route(space, &format!("r{n}"), space, &[&host(n, &apex)]))
            .collect(),
    )
    .await?;
    until("all hosts have listeners", async || {
        Ok(listeners(cluster, space).await? == hosts)
    })
    .await?;
    quiet(cluster, 0).await?;
    let idle = processor(controller)?;
    tokio::time::sleep(IDLE).await;
    let idle = (processor(controller)? - idle).div_f64(IDLE.as_secs_f64());
    let mut counts = Vec::new();
    let mut times = Vec::new();
    let mut cpu = Vec::new();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..ROUNDS {
        let before = cluster.writes()?.len();
        let began = Instant::now();
        let used = processor(controller)?;
        let name = format!("r{}", hosts + round);
        cluster
            .server
            .put(route(space, &name, space, &[&host(hosts + round, &apex)]))
            .await?;
        until("it has one", async || Ok(cluster.writes()?.len() > before)).await?;
        let written = quiet(cluster, before).await?;
        let used = processor(controller)? - used;
        cpu.push(used.saturating_sub(idle.mul_f64(began.elapsed().as_secs_f64())));
        times.push(event_to_objects(
            cluster,
            &format!("{space}/{name}"),
            &written,
        )?);
        counts.push(written.len());
        for request in written {
            *kinds.entry(request.resource).or_default() += 1;
        }
    }
    let (bytes, bare) = bare(cluster, space).await?;
    let event = median(times);
    let what: Vec<String> = kinds
        .iter()
        .map(|(kind, count)| format!("{kind} {:.1}", *count as f64 / ROUNDS as f64))
        .collect();
    println!(
        "{hosts:>6} {issuer:<12} {:>6} {bytes:>8} B {:>5.1} ms {:>7.1} ms {:>7.1}x {:>5.1} ms  {}",
        median(counts),
        millis(bare),
        millis(event),
        millis(event) / millis(bare),
        millis(median(cpu)),
        what.join(", ")
    );
    // The next row must count its own hosts only.
    cluster
        .server
        .api(tenants::TENANT, "TenantGateway", space)
        .await?
        .delete("cozystack", &Default::default())
        .await?;
    let routes = cluster.server.api(GATEWAY, "HTTPRoute", space).await?;
    routes
        .delete_collection(&Default::default(), &ListParams::default())
        .await?;
    let certificates = cluster
        .server
        .api(CERT_MANAGER, "Certificate", space)
        .await?;
    certificates
        .delete_collection(&Default::default(), &ListParams::default())
        .await?;
    quiet(cluster, 0).await?;
    Ok(())
}

/// Returns the number of hosts that have a listener of their own.
async fn listeners(cluster: &Cluster, space: &str) -> Result<usize> {
    let mut count = 0;
    for kind in ["Gateway", "ListenerSet"] {
        for object in cluster
            .server
            .api(GATEWAY, kind, space)
            .await?
            .list(&ListParams::default())
            .await?
        {
            let all = object.data["spec"]["listeners"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            count += all
                .iter()
                .filter(|listener| listener["protocol"] == "HTTPS")
                .count();
        }
    }
    Ok(count)
}

/// Returns the time from the answer to the route's writer to the answer to the last object that the
/// controller wrote for it.
fn event_to_objects(cluster: &Cluster, route: &str, written: &[Request]) -> Result<Duration> {
    let all = cluster.server.requests()?;
    let made = all
        .iter()
        .find(|r| r.resource == "httproutes" && r.object == route && r.code == 201);
    let made = made.context("the route was written")?.at;
    let last = written
        .iter()
        .filter(|r| !r.resource.ends_with("/status"))
        .map(|r| r.at)
        .max();
    Ok(last
        .context("objects were written")?
        .duration_since(made)
        .unsigned_abs())
}

/// Returns the size and time of one write of the object with the host by a plain client: equally
/// large, with one listener changed.
async fn bare(cluster: &Cluster, space: &str) -> Result<(usize, Duration)> {
    let shards = objects(&cluster.server, space).await?;
    let shards = shards
        .into_iter()
        .filter(|object| object["spec"]["listeners"].is_array());
    let mut largest: Value = shards
        .max_by_key(|object| object["spec"].to_string().len())
        .context("a Gateway")?;
    let kind = largest["kind"].as_str().unwrap_or_default().to_owned();
    largest["metadata"] = json!({"name": "bare", "namespace": space});
    largest["apiVersion"] = json!(GATEWAY);
    largest
        .as_object_mut()
        .context("an object")?
        .remove("status");
    let api = cluster.server.api(GATEWAY, &kind, space).await?;
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        largest["spec"]["listeners"][0]["port"] = json!(1000 + round);
        let began = Instant::now();
        api.patch(
            "bare",
            &PatchParams::apply("bare").force(),
            &Patch::Apply(&largest),
        )
        .await?;
        times.push(began.elapsed());
    }
    api.delete("bare", &Default::default()).await?;
    Ok((largest["spec"].to_string().len(), median(times)))
}
