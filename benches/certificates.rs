//! Certificates: how fast they come from Pebble, beside a trivial client with as many workers, caddy and lego; the
//! internal CA without a network; what ten thousand certificates cost while nothing happens.
//!
//! `cargo bench -p e2e --bench certificates [-- pebble|peers|airgap|idle]`. Client and Pebble share the machine, so a
//! rate is told as a part of what the trivial client reaches in the same run.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use acme::client::Roots;
use acme::engine::{AcmeConfig, AcmeIssuer};
use acme::issuer::Issuer;
use acme::keeper::Keeper;
use acme::storage::dir::Directory;
use acme::{CertificateId, Names, Wanted};
use anyhow::{Context, Result, bail, ensure};
use e2e::pebble::{Options, Pebble};
use gatewright::certificates::{Authority, Desk, DeskConfig, Handout, IssuerRef, Wish};
use gatewright::model::{Hostname, ObjectName};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{Identifier, NewAccount, NewOrder, OrderStatus};
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::sync::{mpsc, watch};

const CERTIFICATES: usize = 1000;
const WORKERS: usize = 8;
const ROUNDS: usize = 5;
/// Pebble can deadlock: a run without an end is void, and made again with another one.
const WATCHDOG: Duration = Duration::from_secs(120);
const PEERS: usize = 40;
const INTERNAL: usize = 10_000;
const IDLE: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let wish = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match wish.as_deref() {
        Some("pebble") => runtime.block_on(pebble()),
        Some("peers") => runtime.block_on(peers()),
        Some("airgap-inside") => runtime.block_on(internal()),
        Some("airgap") => airgap(),
        Some("idle") => runtime.block_on(idle()),
        Some(other) => bail!("nothing is called {other}: expected pebble, peers, airgap or idle"),
        None => {
            runtime.block_on(pebble())?;
            runtime.block_on(peers())?;
            airgap()?;
            runtime.block_on(idle())
        }
    }
}

/// Time on processors of this process, and how much of it outside the kernel.
fn processor_times() -> Result<(Duration, Duration)> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit(')').next().context("a name")?.split_whitespace().collect();
    let (user, kernel) = (fields[11].parse::<u64>()?, fields[12].parse::<u64>()?);
    Ok((Duration::from_millis((user + kernel) * 10), Duration::from_millis(user * 10)))
}

fn processor_time() -> Result<Duration> {
    Ok(processor_times()?.0)
}

/// How long a run took, and how much processor time it needed.
#[derive(Clone, Copy)]
struct Run {
    took: Duration,
    work: Duration,
    /// Crypto and bookkeeping: what is not spent in the kernel, on sockets and files.
    own: Duration,
    /// What Pebble was asked, all in all.
    requests: usize,
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

/// Measures something, again while it does not come to an end.
async fn measured<F: Future<Output = Result<()>>>(what: &str, run: impl Fn(Arc<Pebble>, PathBuf) -> F) -> Result<Run> {
    for _ in 0..3 {
        let options = Options { always_valid: true, eager: true, ..Options::default() };
        let pebble = Arc::new(Pebble::start(&options).await?);
        let dir = tempfile::tempdir()?;
        let (start, (work, own)) = (Instant::now(), processor_times()?);
        match tokio::time::timeout(WATCHDOG, run(pebble.clone(), dir.path().to_owned())).await {
            Ok(done) => {
                done?;
                let (took, now) = (start.elapsed(), processor_times()?);
                return Ok(Run { took, work: now.0 - work, own: now.1 - own, requests: pebble.requests() });
            }
            Err(_) => println!("{what}: no end within {WATCHDOG:?}, the run is void"),
        }
    }
    bail!("{what}: three void runs")
}

async fn pebble() -> Result<()> {
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        // In turns, so that neither has the quieter machine.
        let trivial_first = round % 2 == 0;
        let early = if trivial_first { Some(measured("trivial client", trivial_client).await?) } else { None };
        let ours = measured("gatewright", keeper).await?;
        let trivial = match early {
            Some(run) => run,
            None => measured("trivial client", trivial_client).await?,
        };
        rounds.push((ours, trivial));
    }
    let part = |(ours, trivial): &(Run, Run)| ours.rate() / trivial.rate();
    rounds.sort_by(|a, b| part(a).total_cmp(&part(b)));
    println!("{CERTIFICATES} certificates from Pebble, {WORKERS} at a time, the median of {ROUNDS} rounds:");
    let (ours, trivial) = &rounds[ROUNDS / 2];
    for (name, run) in [("trivial client", trivial), ("gatewright", ours)] {
        let (rate, each, own) = (run.rate(), run.each(), run.own());
        let requests = run.requests as f64 / CERTIFICATES as f64;
        println!(
            "  {name:<16} {rate:6.1}/s  {each:.2} ms of processor each, {own:.2} ms of it outside the kernel, {requests:.2} requests"
        );
    }
    let parts: Vec<String> = rounds.iter().map(|round| format!("{:.0}", 100.0 * part(round))).collect();
    println!("  {:.0} % of the ceiling (rounds: {} %)", 100.0 * part(&rounds[ROUNDS / 2]), parts.join(", "));
    Ok(())
}

fn pem(pebble: &Pebble) -> Result<String> {
    match pebble.roots() {
        Roots::Pem(pem) => Ok(pem),
        _ => bail!("Pebble's roots are in PEM"),
    }
}

async fn keeper(pebble: Arc<Pebble>, dir: PathBuf) -> Result<()> {
    let storage = Arc::new(Directory::open(dir.join("acme"))?);
    let mut config = AcmeConfig::new("pebble", &pebble.directory());
    config.roots = pebble.roots();
    config.registration.terms_agreed = true;
    config.at_once = WORKERS;
    // The bucket of a generic CA would hold the rate down.
    config.limits = Some(acme::budget::Limits { orders: None, ..acme::budget::Limits::of(&pebble.directory()) });
    let issuer = Arc::new(AcmeIssuer::open(config, storage.clone()).await?);
    // As many talk to Pebble; others write their keys and certificates to disk meanwhile.
    let keeper = Keeper::open(storage, [issuer as Arc<dyn Issuer>], 4 * WORKERS).await?;
    let wanted: Vec<Wanted> = (0..CERTIFICATES)
        .map(|i| {
            let names = Names::parse([format!("h{i}.example{i}.com")])?;
            let id = CertificateId::of("t", &names);
            let (tenant, issuer) = ("t".to_owned(), "pebble".to_owned());
            Ok(Wanted { id, tenant, issuer, names, validity: None, may_share: false, renew_now: false, hold: None })
        })
        .collect::<Result<_>>()?;
    let pass = keeper.pass(&wanted, Timestamp::now()).await;
    ensure!(pass.issued.len() == CERTIFICATES, "{} issued, {:?}", pass.issued.len(), pass.failed.first());
    Ok(())
}

/// As little as the protocol allows: nothing is kept, nothing is checked, nobody waits.
async fn trivial_client(pebble: Arc<Pebble>, _: PathBuf) -> Result<()> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem(&pebble)?.as_bytes())?)?;
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
    let client = Client::builder(TokioExecutor::new()).build(builder.enable_http1().enable_http2().wrap_connector(tcp));
    let new = NewAccount { contact: &[], terms_of_service_agreed: true, only_return_existing: false };
    let builder = instant_acme::Account::builder_with_http(Box::new(client));
    let (account, _) = builder.create(&new, pebble.directory(), None).await?;
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..WORKERS {
        let (account, next) = (account.clone(), next.clone());
        workers.spawn(async move {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= CERTIFICATES {
                    return Ok::<_, anyhow::Error>(());
                }
                one(&account, &format!("h{i}.example{i}.com")).await?;
            }
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(())
}

async fn one(account: &instant_acme::Account, name: &str) -> Result<()> {
    let mut order = account.new_order(&NewOrder::new(&[Identifier::Dns(name.to_owned())])).await?;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let challenge = authorization.challenge(instant_acme::ChallengeType::Http01);
        challenge.context("HTTP-01 is offered")?.set_ready().await?;
    }
    let pause = || tokio::time::sleep(Duration::from_millis(10));
    while order.refresh().await?.status == OrderStatus::Pending {
        pause().await;
    }
    let key = rcgen::KeyPair::generate()?;
    let csr = rcgen::CertificateParams::new(vec![name.to_owned()])?.serialize_request(&key)?;
    order.finalize_csr(csr.der()).await?;
    while order.state().status != OrderStatus::Valid {
        ensure!(order.state().status != OrderStatus::Invalid, "{name} is invalid");
        order.refresh().await?;
        if order.state().status != OrderStatus::Valid {
            pause().await;
        }
    }
    order.certificate().await?.context("it is issued").map(drop)
}

fn tool(name: &str) -> Option<std::path::PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools").join(name);
    if !path.exists() {
        println!("  {name}: not there, e2e/tools install {name}");
    }
    path.exists().then_some(path)
}

async fn peers() -> Result<()> {
    let options = Options { always_valid: true, eager: true, ..Options::default() };
    println!("{PEERS} certificates from Pebble, every challenge taken as met:");
    let told = |name: &str, count: usize, took: Duration| {
        println!("  {name:<16} {:6.2}/s", count as f64 / took.as_secs_f64());
    };
    if let Some(lego) = tool("lego") {
        let pebble = Pebble::start(&options).await?;
        let dir = tempfile::tempdir()?;
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, pem(&pebble)?)?;
        let start = Instant::now();
        for i in 0..PEERS {
            let done = Command::new(&lego)
                .env("LEGO_CA_CERTIFICATES", &ca)
                .args(["--server", &pebble.directory(), "--email", "a@example.com", "--accept-tos", "--http"])
                .args(["--http.port", "127.0.0.1:0", "--domains", &format!("h{i}.example{i}.com"), "--path"])
                .arg(dir.path())
                .arg("run")
                .output()?;
            ensure!(done.status.success(), "lego: {}", String::from_utf8_lossy(&done.stderr));
        }
        told("lego", PEERS, start.elapsed());
    }
    if let Some(caddy) = tool("caddy") {
        let pebble = Pebble::start(&options).await?;
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("ca.pem"), pem(&pebble)?)?;
        let ports = [e2e::world::free_port()?, e2e::world::free_port()?];
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

/// Ten thousand wishes, each with a domain of its own among fifty.
fn wishes() -> Result<Vec<Wish>> {
    let wish = |i: usize| {
        let host = Hostname::parse(&format!("h{i}.site{}.internal", i % 50))?;
        Ok(Wish {
            secret: ObjectName::new(format!("tenant{}", i % 50), format!("h{i}-tls")),
            hostnames: BTreeSet::from([host]),
            issuer: IssuerRef::Named("internal-ca".into()),
        })
    };
    (0..INTERNAL).map(wish).collect()
}

struct Office {
    desk: Arc<Desk>,
    handouts: mpsc::Receiver<Vec<Handout>>,
    stopper: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

/// A desk with ten thousand certificates of the internal CA, and how long they took.
async fn office() -> Result<(Office, Duration)> {
    let dir = tempfile::tempdir()?;
    let authority = Authority::open(dir.path().join("ca"), Timestamp::now()).map_err(anyhow::Error::msg)?;
    let config = DeskConfig {
        storage: Arc::new(Directory::open(dir.path().join("acme"))?),
        authority: Arc::new(authority),
        issuers: BTreeMap::new(),
        at_once: 32,
        places: None,
        cabinet: None,
    };
    let desk = Arc::new(Desk::open(config).await?);
    let (out, mut handouts) = mpsc::channel(4);
    let (stopper, stop) = watch::channel(false);
    let start = Instant::now();
    desk.wish(wishes()?);
    let at_desk = desk.clone();
    let task = tokio::spawn(async move { at_desk.run(out, stop).await });
    let mut count = 0;
    while count < INTERNAL {
        let batch = handouts.recv().await.context("the desk goes on")?;
        count += batch.iter().filter(|h| matches!(h, Handout::Certificate(_, Some(_)))).count();
    }
    Ok((Office { desk, handouts, stopper, task, _dir: dir }, start.elapsed()))
}

async fn internal() -> Result<()> {
    let work = processor_time()?;
    let (office, took) = office().await?;
    let work = processor_time()? - work;
    println!(
        "internal CA, no network: {INTERNAL} certificates stored and handed out in {:.1} s ({:.0}/s, {:.2} ms of processor each)",
        took.as_secs_f64(),
        INTERNAL as f64 / took.as_secs_f64(),
        work.as_secs_f64() * 1e3 / INTERNAL as f64
    );
    office.stopper.send_replace(true);
    Ok(office.task.await?)
}

/// In a network namespace of its own, in which not even the loopback interface is up.
fn airgap() -> Result<()> {
    let own = std::env::current_exe()?;
    let mut command = Command::new("unshare");
    if !std::fs::read_to_string("/proc/self/status")?.contains("\nUid:\t0\t") {
        command.arg("--map-root-user");
    }
    let done = command.arg("--net").arg(own).arg("airgap-inside").status().context("unshare")?;
    ensure!(done.success(), "the run without a network failed");
    Ok(())
}

async fn idle() -> Result<()> {
    let (mut office, _) = office().await?;
    // What the last certificates still cause is over.
    tokio::time::sleep(Duration::from_secs(3)).await;
    while office.handouts.try_recv().is_ok() {}
    let before = processor_time()?;
    tokio::time::sleep(IDLE).await;
    let used = processor_time()? - before;
    println!(
        "idle with {INTERNAL} certificates: {:.2} % of a core over {} s",
        100.0 * used.as_secs_f64() / IDLE.as_secs_f64(),
        IDLE.as_secs()
    );
    ensure!(office.desk.is_settled(), "all is there");
    office.stopper.send_replace(true);
    Ok(office.task.await?)
}
