//! The time from a command until it serves a page over HTTPS with a certificate of its own CA, and
//! what has to be typed: `gatewright serve` beside caddy.
//!
//! `e2e/tools install envoy caddy`, then `cargo bench --workspace --bench first_page`. Both proxy
//! to the same backend and take turns; a first start makes a CA, a second one has it. Prints the
//! medians and their ratio, and asserts nothing about time.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use e2e::private_dir::private_dir;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::caddy::{self, Caddy};
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
        let state = private_dir()?;
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
        let began = Instant::now();
        let _program = Caddy::start(program, self.state.path(), &text)?;
        self.page(began).await
    }
}

fn median(mut all: Vec<Duration>) -> f64 {
    all.sort();
    all[all.len() / 2].as_secs_f64() * 1000.0
}

#[tokio::main]
async fn main() -> Result<()> {
    let caddy = caddy::binary()?;
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
