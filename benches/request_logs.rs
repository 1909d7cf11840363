//! Processor time of Envoy for each request: without an access log, with each mode of it, with a
//! collector, and with traces.
//!
//! `cargo bench --workspace --bench request_logs`. All requests go over one connection of HTTP/1.1
//! to one backend, so that one worker serves them. The ways take turns, and the time of a turn is
//! that of the whole process of Envoy. Prints the medians and asserts nothing about time.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use e2e::collector::Collector;
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e::usage::processor_time;
use e2e::world::{World, api, class, free_port, object, service};
use gatewright_core::translate::Change;
use serde_json::{Value, json};

const HOST: &str = "app.example.org";
/// Requests of each turn.
const REQUESTS: u32 = 20_000;
/// Requests before the first turn.
const WARM_UP: u32 = 2_000;
/// Turns of each way.
const TURNS: usize = 5;

/// A way to log or trace requests, with an Envoy of its own.
struct Way {
    name: &'static str,
    world: World,
    probe: Probe,
    /// Microseconds for each request, by turn.
    turns: Vec<f64>,
}

impl Way {
    async fn new(
        name: &'static str,
        web: SocketAddr,
        collector: SocketAddr,
        log: &Value,
        is_traced: bool,
    ) -> Result<Self> {
        let port = free_port()?;
        let world = World::start(objects(port, web, collector, log, is_traced)).await?;
        let probe = Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HOST);
        Ok(Self {
            name,
            world,
            probe,
            turns: Vec::new(),
        })
    }

    async fn send(&self, requests: u32) -> Result<()> {
        let mut connection = self.probe.connect().await?;
        for _ in 0..requests {
            let answer = connection.ask(&self.probe).await?;
            ensure!(answer.status == 200, "{}: {}", self.name, answer.status);
        }
        Ok(())
    }

    async fn turn(&mut self) -> Result<()> {
        let envoy = self.world.envoy.pid();
        let before = processor_time(envoy)?;
        self.send(REQUESTS).await?;
        let spent = processor_time(envoy)? - before;
        self.turns
            .push(spent.as_secs_f64() * 1e6 / f64::from(REQUESTS));
        Ok(())
    }
}

fn objects(
    port: u16,
    web: SocketAddr,
    collector: SocketAddr,
    log: &Value,
    is_traced: bool,
) -> Vec<Change> {
    let parameters = json!({"group": "gatewright.io", "kind": "GatewayParameters", "name": "logged"});
    let mut all = vec![
        class(),
        object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "default", "name": "logged"}, "spec": {"accessLog": log}}),
        ),
        api(
            "Gateway",
            "edge",
            json!({"gatewayClassName": "ours", "infrastructure": {"parametersRef": parameters},
                "listeners": [{"name": "http", "port": port, "protocol": "HTTP"}]}),
        ),
        api(
            "HTTPRoute",
            "app",
            json!({"parentRefs": [{"name": "edge"}], "hostnames": [HOST],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}),
        ),
    ];
    if is_traced {
        let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
        let provider = json!({"backendRef": {"name": "collector", "port": 80}});
        all.push(object(
            json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XTelemetryPolicy",
            "metadata": {"namespace": "default", "name": "traces"}, "spec": {"targetRefs": [target],
                "tracing": {"mode": "Enabled", "provider": provider}}}),
        ));
    }
    all.extend(service("web", web));
    all.extend(service("collector", collector));
    all
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let (web, collector) = (Echo::start("web").await?, Collector::start().await?);
    let sink = json!({"type": "OpenTelemetry", "openTelemetry": {"service": "collector", "port": 80}});
    let mut ways = Vec::new();
    for (name, log, is_traced) in [
        ("no log", json!({"mode": "Off"}), false),
        ("errors", json!({"mode": "Errors"}), false),
        ("all, to standard output", json!({"mode": "All"}), false),
        (
            "all, to a collector",
            json!({"mode": "All", "sinks": [sink]}),
            false,
        ),
        ("no log, a span for each", json!({"mode": "Off"}), true),
    ] {
        let way = Way::new(name, web.address(), collector.address(), &log, is_traced).await?;
        way.send(WARM_UP).await?;
        ways.push(way);
    }
    for _ in 0..TURNS {
        for way in &mut ways {
            way.turn().await?;
        }
    }
    println!("microseconds of Envoy's processor time for each request, median of {TURNS} turns of {REQUESTS}");
    for way in &mut ways {
        way.turns.sort_by(f64::total_cmp);
        println!(
            "{:<26} {:>6.1}  ({:.1} to {:.1})",
            way.name,
            way.turns[TURNS / 2],
            way.turns[0],
            way.turns[TURNS - 1]
        );
    }
    Ok(())
}
