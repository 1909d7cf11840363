//! Gateways of our own class with many hosts on a real Envoy: the time from the creation of a route
//! to HTTPS 200.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::cluster::{BACKEND, Cluster, is_true, service, tls_secret};
use e2e::echo::Echo;
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
    let plain = json!({"name": "http", "port": free_port()?, "protocol": "HTTP"});
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

    let api = server.api(GATEWAY, "HTTPRoute", SPACE).await?;
    let mut bare = Vec::new();
    let mut live = Vec::new();
    let mut cpu = Vec::new();
    let mut writes = Vec::new();
    for number in hosts..total {
        let before = cluster.writes()?.len();
        let used = processor(&controller)?;
        let began = Instant::now();
        let object = route(number);
        api.patch(
            &format!("r{number}"),
            &PatchParams::apply("bench").force(),
            &Patch::Apply(&object),
        )
        .await?;
        bare.push(began.elapsed());
        served(address, number).await?;
        live.push(began.elapsed() - bare[bare.len() - 1]);
        cpu.push(processor(&controller)? - used);
        if number - hosts < 3 {
            writes.push(quiet(&cluster, before).await?.len());
        }
    }
    println!(
        "a route created there: HTTPS 200 {:.1} ms after the answer to its write, which took {:.1} ms: {:.1}x; {:.1} ms of our processor, {} writes",
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
    let began = Instant::now();
    loop {
        let answer = Probe::https(address, &host(number))
            .limit(Duration::from_secs(5))
            .send()
            .await;
        if answer.is_ok_and(|answer| answer.status == 200) {
            return Ok(());
        }
        ensure!(
            began.elapsed() < Duration::from_secs(300),
            "{} is not served",
            host(number)
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
