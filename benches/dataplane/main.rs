//! What a request costs: instructions of Envoy's worker thread in user space, ours beside those of
//! a classic Envoy with one filter chain per host.
//!
//! `cargo bench -p e2e-inside --bench dataplane -- [parts] [policies] [HOSTS]` needs Valgrind. Instructions are
//! counted by Callgrind: twice as many requests more on one connection cost the difference, so that
//! the connection and its handshake do not count. The kernel and the main thread do not count
//! either. `parts` leaves out each part of our configuration alone, and prints what the request is
//! cheaper by. `policies` prints what policies add. With `DATAPLANE_CHECK=1` the ratios are compared with the recorded ones.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

mod classic;
mod hosts;
mod parts;
mod policies;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::callgrind::{Callgrind, Instructions};
use e2e::envoy::Envoy;
use e2e::probe::{Connection, Probe};
use e2e_inside::world::{World, free_port};

/// The ratios of ours to the classic Envoy, by HTTP/1.1 and HTTP/2, at [`HOSTS`] hosts.
const RECORDED: [f64; 2] = [1.133, 1.126];

/// How far a ratio may be from the recorded one.
const TOLERANCE: f64 = 0.01;

const HOSTS: usize = 64;

/// The number of requests in the shorter of two measurements.
const REQUESTS: u64 = 60;

/// Requests before the first measurement.
const WARM_UP: u64 = 30;

/// Measurements, of which the median counts.
const ROUNDS: usize = 3;

/// The time within which a host answers.
const LIMIT: Duration = Duration::from_secs(60);

/// The instructions of one request by HTTP/1.1 and by HTTP/2.
type Cost = [u64; 2];

/// The request whose cost is measured.
#[derive(Clone, Copy)]
struct Request<'a> {
    port: u16,
    host: &'a str,
    /// Its header `Authorization`, if it has one.
    authorization: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// A request for a host on a port.
    fn new(port: u16, host: &'a str) -> Self {
        Self {
            port,
            host,
            authorization: None,
        }
    }

    fn probe(self, protocol: &str) -> Probe {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let probe = Probe::https(at, self.host)
            .alpn(&[protocol])
            .header("user-agent", "bench/1.0")
            .header("accept", "*/*")
            .limit(Duration::from_secs(60));
        match self.authorization {
            Some(value) => probe.header("authorization", value),
            None => probe,
        }
    }
}

/// Begins to count once the host answers: its certificate is there, and everything was run once.
async fn begin(envoy: &Envoy, request: Request<'_>) -> Result<Callgrind> {
    let probe = request.probe("h2");
    ask(&mut connect(&probe).await?, &probe, 1).await?;
    envoy.count()
}

/// Connects, as soon as the certificate is there. On a busy machine a handshake may take longer
/// than Envoy waits.
async fn connect(probe: &Probe) -> Result<Connection> {
    let start = Instant::now();
    loop {
        match probe.connect().await {
            Ok(connection) => return Ok(connection),
            Err(error) if start.elapsed() > LIMIT => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Measures a request.
async fn cost(callgrind: &mut Callgrind, request: Request<'_>) -> Result<Cost> {
    let mut made = Cost::default();
    for (cost, protocol) in made.iter_mut().zip(["http/1.1", "h2"]) {
        let probe = request.probe(protocol);
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(round(callgrind, &probe).await?);
        }
        rounds.sort_unstable();
        *cost = rounds[ROUNDS / 2];
    }
    Ok(made)
}

async fn round(callgrind: &mut Callgrind, probe: &Probe) -> Result<u64> {
    let mut connection = connect(probe).await?;
    ask(&mut connection, probe, WARM_UP).await?;
    callgrind.take()?;
    ask(&mut connection, probe, REQUESTS).await?;
    let once = worker(&callgrind.take()?)?;
    ask(&mut connection, probe, 3 * REQUESTS).await?;
    let thrice = worker(&callgrind.take()?)?;
    Ok(thrice.saturating_sub(once) / (2 * REQUESTS))
}

async fn ask(connection: &mut Connection, probe: &Probe, times: u64) -> Result<()> {
    for _ in 0..times {
        let answer = connection.ask(probe).await?;
        ensure!(answer.status == 200, "the host answers {}", answer.status);
    }
    Ok(())
}

/// The instructions of the only worker: next to those the other threads execute none, except for
/// the main thread.
fn worker(all: &Instructions) -> Result<u64> {
    let others = all.iter().filter(|(thread, _)| **thread != 1);
    let most = others.map(|(_, instructions)| *instructions).max();
    most.context("no thread but the main one")
}

fn ratios(ours: Cost, theirs: Cost) -> [f64; 2] {
    [0, 1].map(|at| ours[at] as f64 / theirs[at] as f64)
}

async fn run(count: usize, more: &[String]) -> Result<()> {
    let backend = hosts::backend().await?;
    let (port, classic_port) = (free_port()?, free_port()?);
    let host = hosts::name(count / 2);
    let theirs = {
        let envoy = classic::start(count, classic_port, backend).await?;
        let request = Request::new(classic_port, &host);
        let mut callgrind = begin(&envoy, request).await?;
        cost(&mut callgrind, request).await?
    };
    print(count, "classic", theirs, [1.0; 2]);
    let request = Request::new(port, &host);
    let objects = hosts::objects(count, port, backend)?;
    let ours = {
        let world = World::start_counted(objects.clone(), |_| ()).await?;
        let mut callgrind = begin(&world.envoy, request).await?;
        cost(&mut callgrind, request).await?
    };
    let ratios = ratios(ours, theirs);
    print(count, "ours", ours, ratios);
    if more.iter().any(|one| one == "parts") {
        parts::run(&objects, request, ours, theirs).await?;
    }
    if more.iter().any(|one| one == "policies") {
        policies::run(&objects, request, theirs).await?;
    }
    if count == HOSTS && std::env::var_os("DATAPLANE_CHECK").is_some_and(|set| set == "1") {
        for (found, recorded) in ratios.into_iter().zip(RECORDED) {
            ensure!(
                (found / recorded - 1.0).abs() <= TOLERANCE,
                "a request costs {found:.3} times that of the classic Envoy, and {recorded:.3} is \
                 recorded: see benches/README.md, or record the new ratio"
            );
        }
    }
    Ok(())
}

fn print(count: usize, what: &str, cost: Cost, ratios: [f64; 2]) {
    println!(
        "{count:>6} | {what:<34} | {:>7} | {:>7} | {:.3} | {:.3}",
        cost[0], cost[1], ratios[0], ratios[1]
    );
}

#[tokio::main]
async fn main() -> Result<()> {
    println!(" hosts | instructions of a request          | HTTP/1  | HTTP/2  | ratios to classic");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut counts: Vec<usize> = arguments
        .iter()
        .filter_map(|arg| arg.parse().ok())
        .collect();
    if counts.is_empty() {
        counts = vec![HOSTS];
    }
    for count in counts {
        run(count, &arguments).await?;
    }
    Ok(())
}
