//! Benchmark of issuance by Pebble, compared with a trivial client with as many workers, caddy and
//! lego.
//!
//! `cargo bench -p acme --bench pebble [-- ceiling|peers|ours|trivial]`. Client and Pebble share
//! the machine, so that a rate is given as a fraction of the trivial client's in the same run.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

// The fixtures of the tests, without the program that the other tests need, so that this benchmark
// is built in seconds.
#[allow(
    dead_code,
    unreachable_pub,
    reason = "fixtures of a library, of which a bench needs few"
)]
#[path = "../../e2e/src/pebble.rs"]
mod pebble;
#[path = "../../benches/certificates/plain_client.rs"]
mod plain_client;
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the same, and a bench has no tests"
)]
#[path = "../../e2e/src/port.rs"]
mod port;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "fixtures of a library, of which a bench needs few"
)]
#[path = "../../e2e/src/process.rs"]
mod process;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "fixtures of a library, of which a bench needs few"
)]
#[path = "../../e2e/src/usage.rs"]
mod usage;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use acme::client::Roots;
use acme::engine::{AcmeConfig, AcmeIssuer};
use acme::issuer::Issuer;
use acme::keeper::Keeper;
use acme::storage::dir::Directory;
use acme::{CertificateId, Names, Wanted};
use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use pebble::{Options, Pebble};
use tempfile::TempDir;

const CERTIFICATES: usize = 1000;
const WORKERS: usize = 8;
const ROUNDS: usize = 5;
/// Pebble can deadlock: a run that does not end is void, and repeated with another Pebble.
const WATCHDOG: Duration = Duration::from_secs(120);
const PEERS: usize = 40;

fn main() -> Result<()> {
    let want = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    match want.as_deref() {
        Some("ceiling") => runtime.block_on(ceiling()),
        Some("peers") => runtime.block_on(peers()),
        // For a profiler.
        Some("ours") => runtime
            .block_on(measured("gatewright", &mut Vec::new(), keeper))
            .map(drop),
        Some("trivial") => runtime
            .block_on(measured("trivial client", &mut Vec::new(), trivial_client))
            .map(drop),
        Some(other) => bail!("nothing is called {other}: expected ceiling, peers, ours or trivial"),
        None => {
            runtime.block_on(ceiling())?;
            runtime.block_on(peers())
        }
    }
}

/// Returns the processor time of this process, and the part of it outside the kernel.
fn processor_times() -> Result<(Duration, Duration)> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .context("a name")?
        .split_whitespace()
        .collect();
    let user = fields[11].parse::<u64>()?;
    let kernel = fields[12].parse::<u64>()?;
    Ok((
        Duration::from_millis((user + kernel) * 10),
        Duration::from_millis(user * 10),
    ))
}

/// The result of a run: its duration and processor time.
#[derive(Clone, Copy)]
struct Run {
    took: Duration,
    work: Duration,
    /// Crypto and bookkeeping: processor time outside the kernel, which handles sockets and files.
    own: Duration,
    /// Requests to Pebble.
    requests: usize,
    /// Processor time of Pebble.
    ca: Duration,
}

impl Run {
    fn rate(&self) -> f64 {
        CERTIFICATES as f64 / self.took.as_secs_f64()
    }

    fn each(&self) -> f64 {
        self.work.as_secs_f64() * 1e3 / CERTIFICATES as f64
    }

    fn own(&self) -> f64 {
        self.own.as_secs_f64() * 1e3 / CERTIFICATES as f64
    }
}

/// Measures a run, and repeats it while it does not end. Its directory is kept until all runs are
/// measured: ext4 scans all files that were removed within the last minutes when one is created, so
/// that one run would pay for the removal of another's files.
async fn measured<F: Future<Output = Result<()>>>(
    what: &str,
    kept: &mut Vec<TempDir>,
    run: impl Fn(Arc<Pebble>, PathBuf) -> F,
) -> Result<Run> {
    for _ in 0..3 {
        let options = Options {
            always_valid: true,
            eager: true,
            ..Options::default()
        };
        let pebble = Arc::new(Pebble::start(&options).await?);
        let dir = tempfile::tempdir()?;
        let path = dir.path().to_owned();
        kept.push(dir);
        let start = Instant::now();
        let (work, own) = processor_times()?;
        let ca = pebble.processor_time()?;
        match tokio::time::timeout(WATCHDOG, run(pebble.clone(), path)).await {
            Ok(done) => {
                done?;
                let took = start.elapsed();
                let now = processor_times()?;
                let (requests, ca) = (pebble.requests(), pebble.processor_time()? - ca);
                return Ok(Run {
                    took,
                    work: now.0 - work,
                    own: now.1 - own,
                    requests,
                    ca,
                });
            }
            Err(_) => println!("{what}: no end within {WATCHDOG:?}, the run is void"),
        }
    }
    bail!("{what}: three void runs")
}

async fn ceiling() -> Result<()> {
    let mut rounds = Vec::new();
    let mut kept = Vec::new();
    for round in 0..ROUNDS {
        // In turns, so that no client has the quieter machine.
        let trivial_first = round % 2 == 0;
        let early = if trivial_first {
            Some(measured("trivial client", &mut kept, trivial_client).await?)
        } else {
            None
        };
        let ours = measured("gatewright", &mut kept, keeper).await?;
        let trivial = match early {
            Some(run) => run,
            None => measured("trivial client", &mut kept, trivial_client).await?,
        };
        rounds.push((ours, trivial));
    }
    rounds.sort_by(|a, b| part(a).total_cmp(&part(b)));
    println!(
        "{CERTIFICATES} certificates from Pebble, {WORKERS} at a time, the median of {ROUNDS} rounds:"
    );
    let (ours, trivial) = &rounds[ROUNDS / 2];
    for (name, run) in [("trivial client", trivial), ("gatewright", ours)] {
        let rate = run.rate();
        let each = run.each();
        let own = run.own();
        let requests = run.requests as f64 / CERTIFICATES as f64;
        let busy = 100.0 * run.ca.as_secs_f64() / run.took.as_secs_f64();
        println!(
            "  {name:<16} {rate:6.1}/s  {each:.2} ms of processor each, {own:.2} ms of it outside the kernel, \
             {requests:.2} requests, Pebble busy {busy:.0} %"
        );
    }
    let parts: Vec<String> = rounds
        .iter()
        .map(|round| format!("{:.0}", 100.0 * part(round)))
        .collect();
    println!(
        "  {:.0} % of the ceiling (rounds: {} %)",
        100.0 * part(&rounds[ROUNDS / 2]),
        parts.join(", ")
    );
    Ok(())
}

fn part((ours, trivial): &(Run, Run)) -> f64 {
    ours.rate() / trivial.rate()
}

async fn keeper(pebble: Arc<Pebble>, dir: PathBuf) -> Result<()> {
    let storage = Arc::new(Directory::open(dir.join("acme"))?);
    let mut config = AcmeConfig::new("pebble", &pebble.directory());
    config.roots = Roots::Pem(pebble.ca_pem().to_owned());
    config.registration.terms_agreed = true;
    config.max_concurrent = WORKERS;
    // The budget of a CA with unknown limits would reduce the rate.
    config.limits = Some(acme::budget::Limits {
        orders: None,
        ..acme::budget::Limits::of(&pebble.directory())
    });
    let issuer = Arc::new(AcmeIssuer::open(config, storage.clone()).await?);
    // As many send requests to Pebble; others write their keys and certificates to disk meanwhile.
    let keeper = Keeper::open(storage, [issuer as Arc<dyn Issuer>], 4 * WORKERS).await?;
    let wanted: Vec<Wanted> = (0..CERTIFICATES)
        .map(|i| {
            let names = Names::parse([format!("h{i}.example{i}.com")])?;
            let id = CertificateId::of("t", &names);
            let tenant = "t".to_owned();
            let issuer = "pebble".to_owned();
            Ok(Wanted {
                id,
                tenant,
                issuer,
                names,
                validity: None,
                may_share: false,
                renew_now: false,
                hold: None,
            })
        })
        .collect::<Result<_>>()?;
    let pass = keeper.pass(&wanted, Timestamp::now()).await;
    ensure!(
        pass.issued.len() == CERTIFICATES,
        "{} issued, {:?}",
        pass.issued.len(),
        pass.failed.first()
    );
    Ok(())
}

/// The minimum that the protocol requires: nothing is persisted, nothing is checked, no waits.
async fn trivial_client(pebble: Arc<Pebble>, _: PathBuf) -> Result<()> {
    let account = plain_client::account(pebble.directory(), pebble.ca_pem()).await?;
    let names = (0..CERTIFICATES).map(|i| format!("h{i}.example{i}.com"));
    plain_client::issue(&account, names.collect(), WORKERS, |_| ()).await
}

fn tool(name: &str) -> Option<std::path::PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../.tools")
        .join(name);
    if !path.exists() {
        println!("  {name}: not there, e2e/tools install {name}");
    }
    path.exists().then_some(path)
}

async fn peers() -> Result<()> {
    let options = Options {
        always_valid: true,
        eager: true,
        ..Options::default()
    };
    println!("{PEERS} certificates from Pebble, every challenge taken as met:");
    if let Some(lego) = tool("lego") {
        let pebble = Pebble::start(&options).await?;
        let dir = tempfile::tempdir()?;
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, pebble.ca_pem())?;
        let start = Instant::now();
        for i in 0..PEERS {
            let done = Command::new(&lego)
                .env("LEGO_CA_CERTIFICATES", &ca)
                .args([
                    "--server",
                    &pebble.directory(),
                    "--email",
                    "a@example.com",
                    "--accept-tos",
                    "--http",
                ])
                .args([
                    "--http.port",
                    "127.0.0.1:0",
                    "--domains",
                    &format!("h{i}.example{i}.com"),
                    "--path",
                ])
                .arg(dir.path())
                .arg("run")
                .output()?;
            ensure!(
                done.status.success(),
                "lego: {}",
                String::from_utf8_lossy(&done.stderr)
            );
        }
        told("lego", PEERS, start.elapsed());
    }
    if let Some(caddy) = tool("caddy") {
        let pebble = Pebble::start(&options).await?;
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("ca.pem"), pebble.ca_pem())?;
        let ports = [free_port()?, free_port()?];
        let hosts: Vec<String> = (0..PEERS).map(|i| format!("h{i}.example{i}.com")).collect();
        let text = format!(
            "{{\n admin off\n http_port {}\n https_port {}\n acme_ca {}\n acme_ca_root {}\n email a@example.com\n}}\n\
             {} {{\n respond \"x\"\n}}\n",
            ports[0],
            ports[1],
            pebble.directory(),
            dir.path().join("ca.pem").display(),
            hosts.join(", ")
        );
        std::fs::write(dir.path().join("Caddyfile"), text)?;
        let start = Instant::now();
        let mut child = Command::new(&caddy)
            .env("HOME", dir.path())
            .env("XDG_DATA_HOME", dir.path())
            .env("XDG_CONFIG_HOME", dir.path())
            .args(["run", "--adapter", "caddyfile", "--config"])
            .arg(dir.path().join("Caddyfile"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        while pebble.issued() < PEERS && start.elapsed() < WATCHDOG {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        told("caddy", pebble.issued(), start.elapsed());
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

fn told(name: &str, count: usize, took: Duration) {
    println!("  {name:<16} {:6.2}/s", count as f64 / took.as_secs_f64());
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port())
}
