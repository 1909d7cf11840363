//! Processor time of Envoy for each request: without an access log, with each mode of it, with a
//! collector, with traces, and with numbers by namespace.
//!
//! `cargo bench --workspace --bench request_logs`. Each way has an Envoy of its own, and its
//! requests go over one connection of HTTP/1.1 to one backend, so that one worker serves them. The
//! ways take turns, so that they share the other load of the machine; the time of a turn is that of
//! all threads of Envoy. Prints the medians of the times, and of the ratios to no log in the same
//! turn, and asserts nothing about time.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use e2e::collector::Collector;
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e::usage::threads_time;
use e2e_inside::world::{World, api, class, free_port, object, service};
use gatewright_core::translate::Change;
use gatewright_envoy::TrafficMetrics;
use serde_json::{Value, json};

const HOST: &str = "app.example.org";
/// Requests of each turn.
const REQUESTS: u32 = 5_000;
/// Requests before the first turn.
const WARM_UP: u32 = 1_000;
/// Turns of each way.
const TURNS: usize = 9;

/// What an Envoy does beside answering.
struct Extra {
    name: &'static str,
    log: Value,
    is_traced: bool,
    traffic: TrafficMetrics,
}

impl Extra {
    fn log(name: &'static str, log: Value) -> Self {
        Self {
            name,
            log,
            is_traced: false,
            traffic: TrafficMetrics::Off,
        }
    }

    /// All of them, first the one without anything.
    fn all() -> [Self; 7] {
        let sink =
            json!({"type": "OpenTelemetry", "openTelemetry": {"service": "collector", "port": 80}});
        let off = json!({"mode": "Off"});
        [
            Self::log("no log", off.clone()),
            Self::log("Errors, and there are none", json!({"mode": "Errors"})),
            Self::log(
                "All, 5 percent, Stdout",
                json!({"mode": "All", "percent": 5}),
            ),
            Self::log("All, Stdout", json!({"mode": "All"})),
            Self::log(
                "All, OpenTelemetry",
                json!({"mode": "All", "sinks": [sink]}),
            ),
            Self {
                is_traced: true,
                ..Self::log("no log, a span for each", off.clone())
            },
            Self {
                traffic: TrafficMetrics::Namespaces,
                ..Self::log("no log, trafficMetrics", off)
            },
        ]
    }
}

/// An Envoy with one of them.
struct Way {
    name: &'static str,
    world: World,
    probe: Probe,
    /// Microseconds for each request, by turn.
    turns: Vec<f64>,
}

impl Way {
    async fn new(extra: Extra, web: SocketAddr, collector: SocketAddr) -> Result<Self> {
        let port = free_port()?;
        let objects = objects(port, web, collector, &extra);
        let world = World::start_counting(objects, extra.traffic, None).await?;
        let way = Self {
            name: extra.name,
            world,
            probe: Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HOST),
            turns: Vec::new(),
        };
        way.send(WARM_UP).await?;
        Ok(way)
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
        let before = threads_time(envoy)?;
        self.send(REQUESTS).await?;
        let spent = threads_time(envoy)? - before;
        let each = spent.as_secs_f64() * 1e6 / f64::from(REQUESTS);
        self.turns.push(each);
        Ok(())
    }
}

fn objects(port: u16, web: SocketAddr, collector: SocketAddr, extra: &Extra) -> Vec<Change> {
    let parameters =
        json!({"group": "gatewright.io", "kind": "GatewayParameters", "name": "logged"});
    let mut all = vec![
        class(),
        object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "default", "name": "logged"}, "spec": {"accessLog": extra.log}}),
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
    if extra.is_traced {
        let target =
            json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
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

/// The value in the middle, and the least and the greatest.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (
        values[values.len() / 2],
        values[0],
        values[values.len() - 1],
    )
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let (web, collector) = (Echo::start("web").await?, Collector::start().await?);
    let mut ways = Vec::new();
    for extra in Extra::all() {
        ways.push(Way::new(extra, web.address(), collector.address()).await?);
    }
    for _ in 0..TURNS {
        for way in &mut ways {
            way.turn().await?;
        }
    }
    let taken = collector.received();
    ensure!(
        !taken.logs.is_empty() && !taken.spans.is_empty(),
        "the collector has got records and spans"
    );
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!(
        "Envoy's processor time for each request, {TURNS} turns of {REQUESTS}; load average {}",
        load.split_whitespace().next().context("a load average")?
    );
    let plain = ways[0].turns.clone();
    for way in ways {
        let ratios = way
            .turns
            .iter()
            .zip(&plain)
            .map(|(each, plain)| each / plain);
        let (ratio, least, greatest) = spread(ratios.collect());
        let (each, ..) = spread(way.turns);
        println!(
            "{:<26} {each:>6.1} us  ratio {ratio:.2} ({least:.2} to {greatest:.2})",
            way.name
        );
    }
    Ok(())
}
