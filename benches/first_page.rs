//! The time from a command until it serves a page over HTTPS with a certificate of its own CA, and
//! what has to be typed: `gatewright serve` beside caddy.
//!
//! `e2e/tools install envoy caddy`, then `cargo bench --workspace --bench first_page`. Both proxy
//! to the same backend and take turns; a first start makes a CA, a second one has it. Prints the
//! medians and their ratio, and asserts nothing about time.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use e2e::probe::Probe;
use tempfile::TempDir;
use tokio::time::sleep;

const HOST: &str = "localhost";
/// Turns of each program.
const TURNS: usize = 9;
/// The time between two requests of a client that waits.
const PACE: Duration = Duration::from_millis(2);
const LIMIT: Duration = Duration::from_secs(60);

/// What a person types for a site at one port, with ports and private places left to defaults.
const TYPED: [(&str, &str); 2] = [
    ("gatewright", "gatewright serve localhost=3000"),
    ("caddy", "caddy reverse-proxy --from localhost --to :3000"),
];

/// The ports and the folder of a program.
struct Place {
    state: TempDir,
    http: u16,
    https: u16,
    backend: u16,
}

impl Place {
    fn new(backend: SocketAddr) -> Result<Self> {
        let state = tempfile::tempdir()?;
        fs::set_permissions(state.path(), fs::Permissions::from_mode(0o700))?;
        Ok(Self {
            state,
            http: free_port()?,
            https: free_port()?,
            backend: backend.port(),
        })
    }

    /// Waits for a page since a moment; returns the time.
    async fn page(&self, began: Instant) -> Result<Duration> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.https));
        loop {
            let answer = Probe::https(address, HOST).send().await;
            if answer.is_ok_and(|answer| answer.status == 200) {
                return Ok(began.elapsed());
            }
            ensure!(began.elapsed() < LIMIT, "no page at port {}", self.https);
            sleep(PACE).await;
        }
    }

    async fn gatewright(&self) -> Result<Duration> {
        let site = format!("{HOST}={}", self.backend);
        let envoy = e2e::envoy::binary()?.canonicalize()?.display().to_string();
        let (state, https, http) = (
            self.state.path().display().to_string(),
            self.https.to_string(),
            self.http.to_string(),
        );
        let options = [
            "serve",
            &site,
            "--state-dir",
            &state,
            "--envoy",
            &envoy,
            "--https-port",
            &https,
            "--http-port",
            &http,
        ];
        let began = Instant::now();
        let _program = Gatewright::start(&options)?;
        self.page(began).await
    }

    async fn caddy(&self, program: &Path) -> Result<Duration> {
        // The command makes root certificates of the machine trust its CA, which is not for a bench
        // to do: the same site as a file, without that.
        let file = self.state.path().join("Caddyfile");
        let Self {
            http,
            https,
            backend,
            ..
        } = self;
        let text = format!(
            "{{\n admin off\n skip_install_trust\n http_port {http}\n}}\n\
             {HOST}:{https} {{\n reverse_proxy 127.0.0.1:{backend}\n}}\n"
        );
        fs::write(&file, text)?;
        let began = Instant::now();
        let child = Command::new(program)
            .env("HOME", self.state.path())
            .env("XDG_DATA_HOME", self.state.path())
            .env("XDG_CONFIG_HOME", self.state.path())
            .args(["run", "--adapter", "caddyfile", "--config"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let _running = Running(child);
        self.page(began).await
    }
}

/// A program that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

fn caddy() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools");
    std::env::split_paths(&path)
        .chain([own])
        .map(|dir| dir.join("caddy"))
        .find(|program| program.is_file())
        .context("no caddy: run e2e/tools install caddy")
}

fn median(mut all: Vec<Duration>) -> f64 {
    all.sort();
    all[all.len() / 2].as_secs_f64() * 1000.0
}

#[tokio::main]
async fn main() -> Result<()> {
    let caddy = caddy()?;
    let backend = Echo::start("web").await?;
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..TURNS {
        let ours = Place::new(backend.address())?;
        let theirs = Place::new(backend.address())?;
        times[0].push(ours.gatewright().await?);
        times[1].push(theirs.caddy(&caddy).await?);
        times[2].push(ours.gatewright().await?);
        times[3].push(theirs.caddy(&caddy).await?);
    }
    let [first, caddys_first, second, caddys_second] = times.map(median);
    println!("| | first start, ms | next start, ms | typed, characters |");
    println!("| --- | --- | --- | --- |");
    let rows = [(first, second), (caddys_first, caddys_second)];
    for ((name, typed), (first, second)) in TYPED.iter().zip(rows) {
        println!("| {name} | {first:.0} | {second:.0} | {} |", typed.len());
    }
    println!(
        "| ratio | {:.2} | {:.2} | {:.2} |",
        first / caddys_first,
        second / caddys_second,
        TYPED[0].1.len() as f64 / TYPED[1].1.len() as f64
    );
    Ok(())
}
