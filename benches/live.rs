//! One change of many hosts on a real Envoy: from the object to the acknowledgement and to the first answer.
//!
//! `cargo bench -p e2e --bench live`. Each host has a certificate, a ListenerSet and an HTTPRoute of its own; each row
//! adds, changes, rotates and removes hosts beside N others. The classic layout, one filter chain per host, is what
//! every other controller writes; it is pushed through the same server to the same Envoy, so that only the layout
//! differs. Times are of this machine; read ratios.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e::world::{World, api, class, free_port, secret, service};
use gatewright::translate::Change;
use serde_json::json;

const ROUNDS: usize = 60;

fn name(n: usize) -> String {
    format!("h{n}.bench.example.org")
}

fn listener_set(n: usize, port: u16) -> Change {
    let listener = json!({"name": "https", "port": port, "protocol": "HTTPS", "hostname": name(n),
        "tls": {"certificateRefs": [{"name": format!("c{n}")}]}});
    api("ListenerSet", &format!("s{n}"), json!({"parentRef": {"name": "edge"}, "listeners": [listener]}))
}

fn route(n: usize, header: &str) -> Change {
    let filter = json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "x-round", "value": header}]}});
    api(
        "HTTPRoute",
        &format!("r{n}"),
        json!({"parentRefs": [{"kind": "ListenerSet", "name": format!("s{n}")}],
        "rules": [{"filters": [filter], "backendRefs": [{"name": "web", "port": 80}]}]}),
    )
}

fn host(n: usize, port: u16) -> Result<Vec<Change>> {
    Ok(vec![secret(&format!("c{n}"), &name(n))?, listener_set(n, port), route(n, "0")])
}

/// What one kind of change cost, over all rounds.
#[derive(Default)]
struct Row {
    bytes: Vec<u64>,
    gate: Vec<u64>,
    ours: Vec<Duration>,
    ack: Vec<Duration>,
    live: Vec<Duration>,
    envoy: Vec<Duration>,
}

impl Row {
    fn print(&mut self, count: usize, what: &str) {
        let at = |all: &mut Vec<Duration>, percent: usize| {
            all.sort();
            all.get((all.len() * percent / 100).min(all.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        self.bytes.sort_unstable();
        self.gate.sort_unstable();
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        println!(
            "{count:>6} | {what:<14} | {:>6} B | {:>7} B | {:>6.0} us | {:>6.1} ms | {:>6.1} ms | {:>6.1} ms | {:>6.1} ms",
            self.bytes[self.bytes.len() / 2],
            self.gate[self.gate.len() / 2],
            at(&mut self.ours, 50).as_secs_f64() * 1e6,
            ms(at(&mut self.ack, 50)),
            ms(at(&mut self.live, 50)),
            ms(at(&mut self.live, 99)),
            ms(at(&mut self.envoy, 50)),
        );
    }
}

struct Bench {
    world: World,
    port: u16,
}

impl Bench {
    fn probe(&self, n: usize) -> Probe {
        Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), &name(n)).limit(Duration::from_secs(5))
    }

    /// Applies a change and measures until `seen` holds for an answer.
    async fn change(
        &self,
        row: &mut Row,
        n: usize,
        changes: Vec<Change>,
        seen: impl Fn(Option<&e2e::probe::Answer>) -> bool,
    ) -> Result<()> {
        let cpu = self.world.envoy.main_thread_cpu()?;
        let start = Instant::now();
        let (delta, generation) = self.world.apply(changes);
        row.ours.push(start.elapsed());
        self.world.acknowledged(generation).await?;
        row.ack.push(start.elapsed());
        loop {
            let answer = self.probe(n).send().await;
            if seen(answer.as_ref().ok()) {
                break;
            }
            ensure!(start.elapsed() < Duration::from_secs(20), "host {n} never came: {answer:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        row.live.push(start.elapsed());
        row.envoy.push(self.world.envoy.main_thread_cpu()?.saturating_sub(cpu));
        let (mut bytes, mut gate) = (0, 0);
        for resource in delta.resources.values().flatten() {
            let encoded = gatewright::publish::encode(resource);
            let size = (encoded.body.len() + encoded.name.len() + encoded.version.len()) as u64;
            match encoded.kind {
                xds::ResourceType::Listener => gate += size,
                _ => bytes += size,
            }
        }
        row.bytes.push(bytes);
        row.gate.push(gate);
        Ok(())
    }
}

async fn run(count: usize) -> Result<()> {
    let port = free_port()?;
    let echo = Echo::start("web").await?;
    let plain = json!([{"name": "http", "port": free_port()?, "protocol": "HTTP"}]);
    let gateway =
        json!({"gatewayClassName": "ours", "listeners": plain, "allowedListeners": {"namespaces": {"from": "Same"}}});
    let mut changes = vec![class(), api("Gateway", "edge", gateway)];
    changes.extend(service("web", echo.address()));
    let bench = Bench { world: World::start(changes).await?, port };
    let idle = bench.world.envoy.resident()?;

    let mut all = Vec::new();
    for n in 0..count {
        all.extend(host(n, port)?);
    }
    let start = Instant::now();
    let (_, generation) = bench.world.apply(all);
    let ours = start.elapsed();
    bench.world.acknowledged(generation).await?;
    let acked = start.elapsed();
    let last = bench.probe(count - 1).send().await.map_err(|error| anyhow::anyhow!("the last host: {error}"))?;
    ensure!(last.status == 200, "the last host answers {}", last.status);
    let live = start.elapsed();
    let memory = bench.world.envoy.resident()?.saturating_sub(idle);
    println!(
        "{count:>6} | all at once    | ours {:.0} ms, acknowledged {:.0} ms, last host 200 after {:.0} ms, Envoy {:.1} KB per host",
        ours.as_secs_f64() * 1000.0,
        acked.as_secs_f64() * 1000.0,
        live.as_secs_f64() * 1000.0,
        memory as f64 / 1024.0 / count as f64
    );

    let mut held = bench.probe(0).connect().await?;
    let (mut add, mut change, mut rotate, mut remove) =
        (Row::default(), Row::default(), Row::default(), Row::default());
    for round in 0..ROUNDS {
        let n = count + round;
        bench.change(&mut add, n, host(n, port)?, |a| a.is_some_and(|a| a.status == 200)).await?;
        let wanted = format!("round-{round}");
        let changed = |a: Option<&e2e::probe::Answer>| {
            a.is_some_and(|a| a.headers.get("x-round").is_some_and(|v| v.as_bytes() == wanted.as_bytes()))
        };
        bench.change(&mut change, n, vec![route(n, &wanted)], changed).await?;
        let before = bench.probe(n).send().await?.peer.context("over TLS")?.serial;
        let rotated =
            |a: Option<&e2e::probe::Answer>| a.and_then(|a| a.peer.as_ref()).is_some_and(|p| p.serial != before);
        bench.change(&mut rotate, n, vec![secret(&format!("c{n}"), &name(n))?], rotated).await?;
    }
    for round in 0..ROUNDS {
        let n = count + round;
        let gone = host(n, port)?.into_iter().map(|change| match change {
            Change::Put(object) => Change::Delete(object.key()),
            gone => gone,
        });
        bench.change(&mut remove, n, gone.collect(), |a| a.is_none()).await?;
    }
    ensure!(held.ask(&bench.probe(0)).await?.status == 200, "the held connection was drained");
    add.print(count, "add a host");
    change.print(count, "change a route");
    rotate.print(count, "rotate");
    remove.print(count, "remove a host");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    println!(
        " hosts | change         | on wire  | listener  | ours p50  | ack p50   | live p50  | live p99  | Envoy main"
    );
    for count in [64, 1_000, 10_000] {
        run(count).await?;
    }
    Ok(())
}
