//! Gateways of our own class with many hosts on a real Envoy: the time from the creation of a route
//! to HTTPS 200.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::cluster::{BACKEND, Cluster, is_true, service, tls_secret};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::probe::Probe;
use e2e::world::free_port;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{Memory, median, millis, processor, put_all, quiet};
use e2e::tenants::GATEWAY;

/// Most listeners of a ListenerSet.
const SET: usize = 64;
const ROUNDS: usize = 30;
const SPACE: &str = "hosts";

fn host(number: usize) -> String {
    format!("h{number}.bench.example.org")
}

fn route(number: usize) -> Value {
    let set = format!("s{}", number / SET);
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": format!("r{number}"), "namespace": SPACE},
        "spec": {"parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": set}],
            "hostnames": [host(number)], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

fn own_host(number: usize) -> String {
    format!("n{number}.own.example.org")
}

/// The route of a ListenerSet of its own, which is made before it.
fn waiting(number: usize) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": format!("n{number}"), "namespace": SPACE},
        "spec": {"parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": format!("n{number}")}],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

/// A ListenerSet with a new hostname.
fn claiming(number: usize, port: u16) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "ListenerSet", "metadata": {"name": format!("n{number}"), "namespace": SPACE},
        "spec": {"parentRef": {"name": "edge"},
            "listeners": [{"name": "http", "port": port, "protocol": "HTTP", "hostname": own_host(number)}]}})
}

fn listener_set(set: usize, hosts: std::ops::Range<usize>, port: u16) -> Value {
    let listener = |number: usize| {
        json!({"name": format!("l{number}"), "port": port, "protocol": "HTTPS", "hostname": host(number),
            "tls": {"certificateRefs": [{"name": format!("c{number}")}]}})
    };
    json!({"apiVersion": GATEWAY, "kind": "ListenerSet", "metadata": {"name": format!("s{set}"), "namespace": SPACE},
        "spec": {"parentRef": {"name": "edge"}, "listeners": hosts.map(listener).collect::<Vec<_>>()}})
}

/// Measures with `hosts` hosts, each with a listener and a certificate, and all but the last ones
/// with a route.
pub(crate) async fn own(hosts: usize) -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    let echo = Echo::start_on("web", BACKEND).await?;
    let port = free_port()?;
    server
        .apply(include_str!("../../deploy/gatewayclass.yaml"))
        .await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}))
        .await?;
    let plain_port = free_port()?;
    let plain = json!({"name": "http", "port": plain_port, "protocol": "HTTP"});
    let mut all: Vec<Value> = service(SPACE, "web", echo.address().port()).into();
    all.push(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": SPACE},
        "spec": {"gatewayClassName": "gatewright", "allowedListeners": {"namespaces": {"from": "Same"}},
            "listeners": [plain]}}));
    let total = hosts + ROUNDS;
    for number in 0..total {
        all.push(tls_secret(SPACE, &format!("c{number}"), &[&host(number)])?);
    }
    all.extend(
        (0..total.div_ceil(SET))
            .map(|set| listener_set(set, set * SET..((set + 1) * SET).min(total), port)),
    );
    all.extend((0..hosts).map(route));
    put_all(&cluster, all).await?;
    let began = Instant::now();
    let mut controller = cluster.controller("bench")?;
    controller.line("the view is complete").await?;
    let complete = began.elapsed();
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    served(address, hosts - 1).await?;
    let serving = began.elapsed();
    cluster
        .until(GATEWAY, "Gateway", SPACE, "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    quiet(&cluster, 0).await?;
    println!(
        "own class, {hosts} hosts: view in {:.1} s, last host's HTTPS 200 after {:.1} s, {} writes, {}",
        complete.as_secs_f64(),
        serving.as_secs_f64(),
        cluster.writes()?.len(),
        Memory::of(&controller)?
    );

    let plain = SocketAddr::from(([127, 0, 0, 1], plain_port));
    created(
        &cluster,
        &controller,
        "a route of a listener's hostname",
        (hosts..total).map(|number| (route(number), Probe::https(address, &host(number)))),
    )
    .await?;
    for number in hosts..total {
        server.put(waiting(number)).await?;
    }
    let writes = cluster.writes()?.len();
    quiet(&cluster, writes).await?;
    created(
        &cluster,
        &controller,
        "a ListenerSet with a new hostname, whose owner is recorded",
        (hosts..total).map(|number| {
            let probe = Probe::http(plain, &own_host(number));
            (claiming(number, plain_port), probe)
        }),
    )
    .await
}

/// Measures the creation of objects, until the host of each is served.
async fn created(
    cluster: &Cluster,
    controller: &Gatewright,
    what: &str,
    all: impl Iterator<Item = (Value, Probe)>,
) -> Result<()> {
    let mut bare = Vec::new();
    let mut live = Vec::new();
    let mut cpu = Vec::new();
    let mut writes = Vec::new();
    for (count, (object, probe)) in all.enumerate() {
        let (api, name) = cluster.server.api_of(&object).await?;
        let before = cluster.writes()?.len();
        let used = processor(controller)?;
        let began = Instant::now();
        api.patch(
            &name,
            &PatchParams::apply("bench").force(),
            &Patch::Apply(&object),
        )
        .await?;
        bare.push(began.elapsed());
        answered(|| probe.clone()).await?;
        live.push(began.elapsed() - bare[bare.len() - 1]);
        cpu.push(processor(controller)? - used);
        if count < 3 {
            writes.push(quiet(cluster, before).await?.len());
        }
    }
    println!(
        "{what}, created there: 200 {:.1} ms after the answer to its write, which took {:.1} ms: {:.1}x; {:.1} ms of our processor, {} writes",
        millis(median(live.clone())),
        millis(median(bare.clone())),
        millis(median(live)) / millis(median(bare)),
        millis(median(cpu)),
        median(writes)
    );
    Ok(())
}

/// Waits for the first 200 of a host.
async fn served(address: SocketAddr, number: usize) -> Result<()> {
    answered(|| Probe::https(address, &host(number))).await
}

/// Repeats a request until the answer is 200.
async fn answered(probe: impl Fn() -> Probe) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = probe().limit(Duration::from_secs(5)).send().await;
        if answer.is_ok_and(|answer| answer.status == 200) {
            return Ok(());
        }
        ensure!(
            began.elapsed() < Duration::from_secs(300),
            "a host is not served"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
