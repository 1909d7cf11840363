//! Namespaces that tenants filled to their limits, each with what would once end the service of
//! all: both replicas of the controller end meanwhile and start again. A neighbour's host is served
//! throughout, and the host that he added while no replica ran is served soon afterwards.
//!
//! The full namespaces stay, so that the last restart is under all attacks at once. The short form
//! has an eighth of the quotas, and with `COST_SWEEP=1` the default ones are filled, which makes
//! a table of benches/README.md; with another text only by the attacks whose names contain it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{Cluster, NAMESPACE, service};
use e2e::dimensions::{Dimension, Place, QuotaUse};
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use e2e::probe::Probe;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::edge::{edge, route, until_answers};
use crate::pods::until_served;
use crate::serving::Traffic;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const HOST: &str = "web.example.org";
/// The class of all Gateways here.
const CLASS: &str = "gatewright";
/// The default quota of routes: where it is given, the fixture raises none of the quotas.
const DEFAULT: &[&str] = &["limits.namespace.routes=2000"];
/// The quotas of the short form.
const SMALL: &[&str] = &[
    "limits.namespace.routes=250",
    "limits.namespace.envoyMib=32",
    "limits.namespace.programMib=16",
    "limits.namespace.clusters=500",
];
const LIMIT: Duration = Duration::from_secs(180);
/// The time within which a neighbour's new host must be served after a restart: debug builds on a
/// busy machine, after a Lease of three seconds has ended, and Envoy connects again after up to
/// five.
const SOON: Duration = Duration::from_secs(60);
/// The writes to the API server at a time.
const AT_ONCE: usize = 8;
/// The clients of each UDP port.
const CLIENTS: u16 = 2_000;

/// What a tenant fills her namespace with, by the names of dimensions.
const ATTACKS: [&str; 6] = [
    "long hostnames",
    "certificates",
    "UDP ports",
    "shares with header edits",
    "clusters",
    "header edits",
];

/// True if the default quotas are filled.
fn is_long() -> bool {
    std::env::var_os("COST_SWEEP").is_some()
}

/// The attacks that are asked for.
fn attacks() -> impl Iterator<Item = &'static str> {
    let asked = std::env::var("COST_SWEEP").unwrap_or_default();
    let all = asked.is_empty() || asked == "1";
    ATTACKS
        .into_iter()
        .filter(move |attack| all || attack.contains(&asked))
}

/// Both replicas.
struct Replicas {
    one: Gatewright,
    _two: Gatewright,
}

impl Replicas {
    async fn start(cluster: &Cluster) -> Result<Self> {
        let limits = if is_long() { DEFAULT } else { SMALL };
        let limits: Vec<&str> = limits.iter().flat_map(|limit| ["--set", limit]).collect();
        let mut one = cluster.controller_with("one", &limits)?;
        let (mut two, _) = cluster.replica_with_xds_and("two", &limits)?;
        one.line("xDS at").await?;
        two.line("xDS at").await?;
        Ok(Self { one, _two: two })
    }

    /// What a namespace uses of its quotas.
    async fn uses(&mut self, namespace: &str) -> Result<QuotaUse> {
        let (_, metrics) = self.one.probe("/metrics").await?;
        Ok(QuotaUse::read(&metrics, namespace))
    }

    /// Waits until a namespace uses more of its quotas than before, and no more a second later.
    async fn until_used(&mut self, namespace: &str, before: u64) -> Result<u64> {
        let deadline = Instant::now() + LIMIT;
        let mut last = 0;
        loop {
            let now = self.uses(namespace).await?.fullness;
            if now > before && now == last {
                return Ok(now);
            }
            ensure!(
                Instant::now() < deadline,
                "{namespace} uses {now} millionths, before {before}"
            );
            last = now;
            sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn put_all(cluster: &Cluster, objects: Vec<Value>) -> Result<()> {
    stream::iter(objects)
        .map(async |object| cluster.server.put(object).await.map(drop))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

/// A tenant fills her namespace, whose clients then request what there is. Returns the part of her
/// quotas that she uses, in millionths.
async fn fill(cluster: &Cluster, replicas: &mut Replicas, of: &Dimension) -> Result<(Place, u64)> {
    let name = of.name.to_lowercase().replace(' ', "-");
    let place = Place::new(&name, CLASS, ("default", "edge"))?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    cluster.server.put(namespace).await?;
    put_all(cluster, service(&name, "web", 80).into()).await?;
    cluster.server.put(place.own_gateway()).await?;
    put_all(cluster, of.base(&place)).await?;
    let empty = replicas.until_used(&name, 0).await?;
    put_all(cluster, of.objects(&place, 0)).await?;
    let one = replicas.until_used(&name, empty).await?;
    let number = usize::try_from(1_050_000 / (one - empty))?.clamp(1, of.most);
    let rest = (1..number).flat_map(|number| of.objects(&place, number));
    put_all(cluster, rest.collect()).await?;
    let all = match number {
        1 => one,
        _ => replicas.until_used(&name, one).await?,
    };
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, place.https));
    let hosts = (0..number).flat_map(|number| of.requests(&place, number));
    stream::iter(hosts)
        .map(async |host| drop(Probe::https(at, &host).send().await))
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
    Ok((place, all))
}

/// Sends a datagram from each of so many source ports to UDP ports.
fn send(ports: &[u16]) {
    for port in ports {
        for client in 0..CLIENTS {
            // Another program may have the source port, and the queue of the port may be full.
            if let Ok(socket) = UdpSocket::bind((Ipv4Addr::new(127, 0, 1, 1), 20_000 + client)) {
                let _sent = socket.send_to(b"hello", (Ipv4Addr::LOCALHOST, *port));
            }
        }
    }
}

/// The bytes that the API server stores.
#[derive(Clone, Copy)]
struct Stored {
    /// Gateways and routes of a namespace, as their owner wrote them.
    theirs: usize,
    /// What we wrote into them.
    statuses: usize,
    /// All records of owners.
    records: usize,
}

/// Reads from etcd how much a namespace has there.
async fn stored(cluster: &Cluster, namespace: &str) -> Result<Stored> {
    let mut etcd = cluster.server.etcd().await?;
    let records = format!("/registry/configmaps/{NAMESPACE}/gatewright-owners");
    let records = etcd.all(&records).await?;
    let (mut theirs, mut statuses) = (0, 0);
    for (key, value) in etcd.all("/registry/gateway.networking.k8s.io/").await? {
        if !key.contains(&format!("/{namespace}/")) {
            continue;
        }
        let object: Value = serde_json::from_slice(&value).with_context(|| key)?;
        let managed = object["metadata"]["managedFields"].as_array();
        let of_status = managed
            .into_iter()
            .flatten()
            .filter(|entry| entry["subresource"] == "status");
        let ours = object["status"].to_string().len()
            + of_status
                .map(|entry| entry.to_string().len())
                .sum::<usize>();
        statuses += ours;
        theirs += value.len().saturating_sub(ours);
    }
    Ok(Stored {
        theirs,
        statuses,
        records: records.iter().map(|(_, value)| value.len()).sum(),
    })
}

/// Adds a listener for plain HTTP to the Gateway `edge`, which routes of all namespaces may use.
async fn open(cluster: &Cluster, port: u16) -> Result<()> {
    let listener = json!({"name": "http", "protocol": "HTTP", "port": port,
        "allowedRoutes": {"namespaces": {"from": "All"}}});
    let patch = json!([{"op": "add", "path": "/spec/listeners/-", "value": listener}]);
    let patch = Patch::Json::<()>(serde_json::from_value(patch)?);
    let gateways = cluster.server.api(GATEWAY, "Gateway", "default").await?;
    gateways
        .patch("edge", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Where the neighbour's hosts are served, over TLS and over plain HTTP.
struct Neighbour {
    address: SocketAddr,
    plain: SocketAddr,
}

impl Neighbour {
    /// Waits until a host is served.
    async fn serves(&self, host: &str) -> Result<()> {
        until_answers(self.address, host, 200).await?;
        until_served(&Probe::http(self.plain, host), 200).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
#[allow(clippy::print_stdout, reason = "what was measured is worth reading")]
async fn both_replicas_restart_under_each_attack_and_the_neighbour_is_served() -> Result<()> {
    let cluster = Cluster::start().await?;
    let (_echo, address) = edge(&cluster).await?;
    let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    open(&cluster, plain.port()).await?;
    let neighbour = Neighbour { address, plain };
    cluster.server.put(route("web", HOST)).await?;
    let mut replicas = Replicas::start(&cluster).await?;
    let (mut envoy, keys) = cluster.envoy("envoy-a").await?;
    envoy.ready().await?;
    neighbour.serves(HOST).await?;
    let traffic = Traffic::start_with(address, HOST, Duration::from_millis(100));
    println!(
        "| Filled with | Part of the quota | Objects, KiB | Statuses, KiB | Records, KiB \
         | New host, s | After a restart, s |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    let mut records = 0;
    for (number, attack) in attacks().enumerate() {
        let of = Dimension::named(attack)?;
        let filled = fill(&cluster, &mut replicas, of).await;
        let (place, used) = filled.with_context(|| attack.to_owned())?;
        let ports = place.udp.clone();
        spawn_blocking(move || send(&ports)).await?;
        let name = format!("before-{number}");
        let host = format!("{name}.example.org");
        let began = Instant::now();
        cluster.server.put(route(&name, &host)).await?;
        neighbour.serves(&host).await?;
        let before = began.elapsed();
        if is_long() {
            // All statuses and records are written.
            cluster.quiet().await?;
        }
        let stored = stored(&cluster, &place.namespace).await?;

        drop(replicas);
        traffic.some_more().await?;
        let name = format!("meanwhile-{number}");
        let host = format!("{name}.example.org");
        cluster.server.put(route(&name, &host)).await?;
        let began = Instant::now();
        replicas = Replicas::start(&cluster).await?;
        neighbour.serves(&host).await?;
        let after = began.elapsed();
        traffic.some_more().await?;
        println!(
            "| {attack} | {:.2} | {} | {} | {} | {:.1} | {:.1} |",
            used as f64 / 1e6,
            stored.theirs >> 10,
            stored.statuses >> 10,
            (stored.records - records) >> 10,
            before.as_secs_f64(),
            after.as_secs_f64()
        );
        records = stored.records;
        ensure!(after < SOON, "{attack}: {host} took {after:?}");
    }
    assert_eq!(
        traffic.end().await?,
        Vec::<String>::new(),
        "requests for the neighbour's host that failed"
    );

    // An Envoy that starts now gets everything that the neighbour has.
    drop(envoy);
    let mut envoy = cluster
        .envoy_at(keys.path(), "envoy-b", cluster.xds())
        .await?;
    envoy.ready().await?;
    for host in [HOST, "before-0.example.org", "meanwhile-0.example.org"] {
        neighbour.serves(host).await?;
    }
    Ok(())
}
