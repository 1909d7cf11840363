//! Gateways of our own class with many hosts on a real Envoy: the time from the creation of a route
//! to HTTPS 200, and of a hostname to HTTP 200.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::cluster::Cluster;
use e2e::envoy::Envoy;
use e2e::gatewright::Gatewright;
use e2e::probe::Probe;
use e2e::usage::{main_thread_time, memory};
use kube::api::{Patch, PatchParams};
use serde_json::Value;

use crate::own_hosts::{OwnHosts, Parents};
use crate::{Memory, median, millis, processor, quiet};

const ROUNDS: usize = 30;

/// Measures with `hosts` hosts, each with a listener and a certificate, and all but the last ones
/// with a route.
pub(crate) async fn own(hosts: usize, parents: Parents) -> Result<()> {
    let cluster = Cluster::start().await?;
    let all = OwnHosts::new(parents).await?;
    let total = hosts + ROUNDS;
    all.create(&cluster, total).await?;
    all.create_routes(&cluster, 0..hosts).await?;
    println!("{hosts} hosts, parents: {parents:?}");

    let began = Instant::now();
    let mut controller = cluster.controller("bench")?;
    controller.line("the view is complete").await?;
    let complete = began.elapsed();
    controller.line("xDS at").await?;
    let (envoy, _tls) = cluster.envoy("envoy-a").await?;
    answered(&all.probe(hosts - 1)).await?;
    let serving = began.elapsed();
    let used = processor(&controller)?;
    let writes = quiet(&cluster, 0).await?.len();
    println!(
        "a start: view in {:.1} s, last host's HTTPS 200 after {:.1} s, {:.1} s of our processor; {writes} writes in {:.0} s; {}, Envoy {:.0} MB",
        complete.as_secs_f64(),
        serving.as_secs_f64(),
        used.as_secs_f64(),
        began.elapsed().as_secs_f64(),
        Memory::of(&controller)?,
        memory(envoy.pid(), "VmRSS")? as f64 / 1024.0 / 1024.0
    );

    created(
        &cluster,
        &controller,
        &envoy,
        "a route of a listener's hostname",
        (hosts..total).map(|number| (all.route(number), all.probe(number))),
    )
    .await?;
    for number in hosts..total {
        cluster.server.put(all.waiting(number)).await?;
    }
    quiet(&cluster, 0).await?;
    let what = match parents {
        Parents::ListenerSets => "a ListenerSet with a new hostname, whose owner is recorded",
        Parents::Gateways => "a Gateway with a new hostname, whose owner is recorded",
    };
    let new = (hosts..total).map(|number| all.claiming(number));
    created(&cluster, &controller, &envoy, what, new).await
}

/// Measures the creation of objects, until the host of each is served.
async fn created(
    cluster: &Cluster,
    controller: &Gatewright,
    envoy: &Envoy,
    what: &str,
    all: impl Iterator<Item = (Value, Probe)>,
) -> Result<()> {
    let mut bare = Vec::new();
    let mut live = Vec::new();
    let mut cpu = Vec::new();
    let mut main = Vec::new();
    let mut writes = Vec::new();
    for (count, (object, probe)) in all.enumerate() {
        let (api, name) = cluster.server.api_of(&object).await?;
        let before = cluster.writes()?.len();
        let used = processor(controller)?;
        let main_used = main_thread_time(envoy.pid())?;
        let began = Instant::now();
        api.patch(
            &name,
            &PatchParams::apply("bench").force(),
            &Patch::Apply(&object),
        )
        .await?;
        bare.push(began.elapsed());
        answered(&probe).await?;
        live.push(began.elapsed() - bare[bare.len() - 1]);
        cpu.push(processor(controller)? - used);
        main.push(main_thread_time(envoy.pid())? - main_used);
        if count < 3 {
            writes.push(quiet(cluster, before).await?.len());
        }
    }
    println!(
        "{what}, created there: 200 {:.1} ms after the answer to its write, which took {:.1} ms: {:.1}x; {:.1} ms of our processor, {:.1} ms of Envoy's main thread, {} writes",
        millis(median(live.clone())),
        millis(median(bare.clone())),
        millis(median(live)) / millis(median(bare)),
        millis(median(cpu)),
        millis(median(main)),
        median(writes)
    );
    Ok(())
}

/// Repeats a request until the answer is 200.
pub(crate) async fn answered(probe: &Probe) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = probe.clone().limit(Duration::from_secs(5)).send().await;
        if answer.is_ok_and(|answer| answer.status == 200) {
            return Ok(());
        }
        ensure!(
            began.elapsed() < Duration::from_secs(600),
            "a host is not served"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
