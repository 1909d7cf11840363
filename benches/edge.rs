//! Processor time of requests, connections and added hosts, side by side for several versions of
//! the program.
//!
//! `cargo bench --workspace --bench edge [-- NAME=PROGRAM ...]`, with the program as cargo builds
//! it if none is named. Each version runs `standalone` with an Envoy of its own and the same
//! manifests: two tenants, 200 hosts, all listeners terminate TLS with certificates of the internal
//! CA or serve cleartext. Versions take turns, so that they share the other load of the machine,
//! and the last column is the median of the ratios of each turn. Prints a table and asserts nothing
//! about time.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../e2e/tests/isolation/site.rs"]
mod site;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::probe::Probe;
use e2e::usage::{main_thread_time, processor_time, threads_time};
use futures::stream::{self, StreamExt, TryStreamExt};
use site::{FORWARD, Site, route};

/// Hosts that exist before the measurement.
const HOSTS: usize = 200;
/// Hosts added one after the other.
const ADDED: usize = 100;
/// Requests over persistent connections, in total.
const REQUESTS: usize = 20_000;
/// Connections with one request each.
const CONNECTIONS: usize = 2_000;
/// Concurrent clients.
const CLIENTS: usize = 8;
/// Turns of each version.
const TURNS: usize = 9;

/// Results of a run, by name, each in microseconds of processor time.
type Figures = Vec<(&'static str, f64)>;

fn host(number: usize) -> String {
    format!("h{number}.example.org")
}

/// Returns the microseconds for each of `count`.
fn each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

/// Sends requests over persistent connections.
async fn requests(probes: &[Probe]) -> Result<()> {
    let clients = (0..CLIENTS).map(|client| async move {
        let mut probes = probes.iter().cycle().skip(client * 7);
        let first = probes.next().context("a probe")?;
        let mut connection = first.connect().await?;
        for _ in 0..REQUESTS / CLIENTS {
            let answer = connection.ask(first).await?;
            ensure!(answer.status == 200, "answered {}", answer.status);
            if !connection.takes_more().await {
                connection = first.connect().await?;
            }
        }
        Ok(())
    });
    stream::iter(clients)
        .buffer_unordered(CLIENTS)
        .try_collect()
        .await
}

/// Opens a new connection for each request; `served` is true if an answer is expected.
async fn connections(probes: &[Probe], served: bool) -> Result<()> {
    let asked = probes
        .iter()
        .cycle()
        .take(CONNECTIONS)
        .map(|probe| async move {
            let answer = probe.send().await;
            ensure!(answer.is_ok() == served, "{probe:?}: {answer:?}");
            Ok(())
        });
    stream::iter(asked)
        .buffer_unordered(CLIENTS)
        .try_collect()
        .await
}

/// Waits until a host of alice's is served over cleartext.
async fn served(site: &Site, host: &str) -> Result<()> {
    site.answered_by(&site.plain(host), "alice", Duration::from_millis(1))
        .await
}

/// Measures one version, the program in `$GATEWRIGHT_BIN`.
async fn measure() -> Result<Figures> {
    let site = Site::start_alone(&[]).await?;
    let many: String = (0..HOSTS)
        .map(|n| route("alice", &format!("r{n}"), &host(n), FORWARD))
        .collect();
    site.save("many.yaml", &many)?;
    served(&site, &host(HOSTS - 1)).await?;
    let envoy = site.envoy()?;
    let https = SocketAddr::from((Ipv4Addr::LOCALHOST, site.https));
    let probes =
        |make: &dyn Fn(&str) -> Probe| (0..HOSTS).map(|n| make(&host(n))).collect::<Vec<Probe>>();
    let plain = probes(&|host| site.plain(host));
    let h1 = probes(&|host| site.tls(host).alpn(&["http/1.1"]));
    let h2 = probes(&|host| site.tls(host));
    let unknown: Vec<Probe> = (0..HOSTS)
        .map(|n| Probe::https(https, &format!("x{n}.example.net")))
        .collect();
    // Certificates are issued, and fetched by Envoy, on the first handshake.
    connections(&h2, true).await?;

    let mut figures = Figures::new();
    for (name, probes) in [
        ("request, cleartext", &plain),
        ("request, HTTP/1.1 over TLS", &h1),
        ("request, HTTP/2", &h2),
    ] {
        let before = threads_time(envoy)?;
        requests(probes).await?;
        figures.push((name, each(threads_time(envoy)? - before, REQUESTS)));
    }
    let kinds = [
        ("connection, cleartext", &plain, true),
        ("connection, TLS", &h2, true),
        ("connection, name of nobody", &unknown, false),
    ];
    for (name, probes, is_served) in kinds {
        let before = threads_time(envoy)?;
        connections(probes, is_served).await?;
        figures.push((name, each(threads_time(envoy)? - before, CONNECTIONS)));
    }
    let before = processor_time(site.program.pid())?;
    let main = main_thread_time(envoy)?;
    for added in 0..ADDED {
        let host = format!("a{added}.example.org");
        site.save(
            &format!("a{added}.yaml"),
            &route("alice", &format!("a{added}"), &host, FORWARD),
        )?;
        served(&site, &host).await?;
    }
    figures.push((
        "added host, Envoy's main thread",
        each(main_thread_time(envoy)? - main, ADDED),
    ));
    figures.push((
        "added host, program",
        each(processor_time(site.program.pid())? - before, ADDED),
    ));
    Ok(figures)
}

/// Measures a version in a process of its own; returns results by name.
fn turn(program: &str) -> Result<Vec<(String, f64)>> {
    let own = std::env::current_exe().context("the name of this program")?;
    let output = Command::new(own)
        .arg("--measure")
        .env("GATEWRIGHT_BIN", program)
        .output()
        .context("starting a turn")?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success(),
        "{program}: {}{text}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text
        .lines()
        .filter_map(|line| {
            Some((
                line.split_once('\t')?.0.to_owned(),
                line.split_once('\t')?.1.parse().ok()?,
            ))
        })
        .collect())
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    if args.first().is_some_and(|arg| arg == "--measure") {
        for (name, figure) in measure().await? {
            println!("{name}\t{figure}");
        }
        return Ok(());
    }
    let mut versions: Vec<(&str, String)> = Vec::new();
    for arg in &args {
        let (name, program) = arg
            .split_once('=')
            .with_context(|| format!("{arg}: expected NAME=PROGRAM"))?;
        versions.push((name, program.to_owned()));
    }
    if versions.is_empty() {
        versions.push((
            "this version",
            e2e::gatewright::binary()?.display().to_string(),
        ));
    }
    let mut turns: Vec<Vec<Vec<(String, f64)>>> = vec![Vec::new(); versions.len()];
    for number in 0..TURNS {
        // Each version is the first as often as the last: the run before has warmed up the machine.
        let order: Vec<usize> = if number % 2 == 0 {
            (0..versions.len()).collect()
        } else {
            (0..versions.len()).rev().collect()
        };
        for version in order {
            turns[version].push(turn(&versions[version].1)?);
        }
    }
    print!("{:<34}", "us of processor time, median");
    for (name, _) in &versions {
        print!(" {name:>14}");
    }
    println!("   last / first");
    for (row, (what, _)) in turns[0][0].iter().enumerate() {
        let figures: Vec<Vec<f64>> = turns
            .iter()
            .map(|turns| turns.iter().map(|turn| turn[row].1).collect())
            .collect();
        print!("{what:<34}");
        for figures in &figures {
            print!(" {:>14.0}", median(figures.clone()));
        }
        let first = &figures[0];
        let last = &figures[figures.len() - 1];
        println!(
            " {:>14.2}",
            median(
                last.iter()
                    .zip(first)
                    .map(|(last, first)| last / first)
                    .collect()
            )
        );
    }
    Ok(())
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
