//! Benchmark of certificates in the program: time until hosts are served through Envoy, the
//! internal CA without a network, and the cost of ten thousand certificates while nothing happens.
//!
//! `cargo bench -p e2e-inside --bench certificates [-- served [HOSTS [http|tls-alpn|dns|ceiling|caddy]]|storm [CERTIFICATES]|airgap|idle]`.
//! The rate of issuance by an ACME CA is measured by `acme/benches/pebble.rs`.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

mod plain_client;
mod served;
mod storm;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acme::storage::dir::Directory;
use anyhow::{Context, Result, bail, ensure};
use e2e::usage;
use gatewright_control::certificates::{
    Authority, CertificateManager, CertificateManagerConfig, CertificateRequest, CertificateUpdate,
    IssuerRef,
};
use gatewright_core::model::{Hostname, ObjectName};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

const INTERNAL: usize = 10_000;
const IDLE: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let mut args = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"));
    let want = args.next();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    match want.as_deref() {
        Some("airgap-inside") => runtime.block_on(internal()),
        Some("airgap") => airgap(),
        Some("idle") => runtime.block_on(idle()),
        Some("served") => {
            runtime.block_on(served::served(number(args.next())?, args.next().as_deref()))
        }
        Some("storm") => runtime.block_on(storm::storm(number(args.next())?)),
        Some(other) => bail!("nothing is called {other}: expected served, storm, airgap or idle"),
        None => {
            runtime.block_on(served::served(None, None))?;
            runtime.block_on(storm::storm(None))?;
            airgap()?;
            runtime.block_on(idle())
        }
    }
}

fn number(text: Option<String>) -> Result<Option<usize>> {
    text.map(|text| text.parse())
        .transpose()
        .context("expected a number")
}

/// Returns the processor time of this process.
fn processor_time() -> Result<Duration> {
    usage::processor_time(std::process::id())
}

/// Ten thousand wanted certificates, each with a domain of its own among fifty.
fn wants() -> Result<Vec<CertificateRequest>> {
    (0..INTERNAL)
        .map(|i| {
            let host = Hostname::parse(&format!("h{i}.site{}.internal", i % 50))?;
            Ok(CertificateRequest {
                secret: ObjectName::new(format!("tenant{}", i % 50), format!("h{i}-tls")),
                hostnames: BTreeSet::from([host]),
                issuer: IssuerRef::Named("internal-ca".into()),
            })
        })
        .collect()
}

struct Office {
    manager: Arc<CertificateManager>,
    certificate_updates: mpsc::Receiver<Vec<CertificateUpdate>>,
    stopper: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

/// Starts a certificate manager with ten thousand certificates of the internal CA; returns the time
/// that they took, too.
async fn office() -> Result<(Office, Duration)> {
    let dir = tempfile::tempdir()?;
    let authority =
        Authority::open(dir.path().join("ca"), Timestamp::now()).map_err(anyhow::Error::msg)?;
    let config = CertificateManagerConfig {
        storage: Arc::new(Directory::open(dir.path().join("acme"))?),
        authority: Arc::new(authority),
        issuers: BTreeMap::new(),
        at_once: 32,
        places: None,
        secret_targets: None,
    };
    let manager = Arc::new(CertificateManager::open(config).await?);
    let (out, mut certificate_updates) = mpsc::channel(4);
    let (stopper, stop) = watch::channel(false);
    let start = Instant::now();
    manager.want(wants()?);
    let at_desk = manager.clone();
    let task = tokio::spawn(async move { at_desk.run(out, stop).await });
    let mut count = 0;
    while count < INTERNAL {
        let batch = certificate_updates
            .recv()
            .await
            .context("the certificate manager goes on")?;
        count += batch
            .iter()
            .filter(|h| matches!(h, CertificateUpdate::Certificate(_, Some(_))))
            .count();
    }
    Ok((
        Office {
            manager,
            certificate_updates,
            stopper,
            task,
            _dir: dir,
        },
        start.elapsed(),
    ))
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

/// Runs in a network namespace in which not even the loopback interface is up.
fn airgap() -> Result<()> {
    let own = std::env::current_exe()?;
    let mut command = Command::new("unshare");
    if !std::fs::read_to_string("/proc/self/status")?.contains("\nUid:\t0\t") {
        command.arg("--map-root-user");
    }
    let done = command
        .arg("--net")
        .arg(own)
        .arg("airgap-inside")
        .status()
        .context("unshare")?;
    ensure!(done.success(), "the run without a network failed");
    Ok(())
}

async fn idle() -> Result<()> {
    let (mut office, _) = office().await?;
    // The work that follows the last certificates is done by now.
    tokio::time::sleep(Duration::from_secs(3)).await;
    while office.certificate_updates.try_recv().is_ok() {}
    let before = processor_time()?;
    tokio::time::sleep(IDLE).await;
    let used = processor_time()? - before;
    println!(
        "idle with {INTERNAL} certificates: {:.2} % of a core over {} s",
        100.0 * used.as_secs_f64() / IDLE.as_secs_f64(),
        IDLE.as_secs()
    );
    ensure!(office.manager.is_settled(), "all is there");
    office.stopper.send_replace(true);
    Ok(office.task.await?)
}
