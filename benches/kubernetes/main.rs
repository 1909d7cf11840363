//! Benchmark of the load on an API server: writes and time for one added host, many TenantGateways
//! from nothing, a start with all of them, a steady state, the time from a route to HTTPS, and that
//! of many routes in one file.
//!
//! `cargo bench -p e2e --bench kubernetes [-- hosts | mass [TENANTS [HOSTS]] | start [TENANTS
//! [HOSTS]] | own [HOSTS] | gateways [HOSTS] | apply [ROUTES]]`.
//! API server and controller share the machine, so that times are given as multiples of a plain
//! client's time for the same writes in the same run; counts are exact.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

mod apply;
mod hosts;
mod many;
mod mass;
mod own;
mod own_hosts;
mod start;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use e2e::apiserver::Request;
use e2e::cluster::Cluster;
use e2e::gatewright::Gatewright;
use e2e::usage;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use crate::many::Tenants;
use crate::own_hosts::Parents;

/// Concurrent writes, as many as the controller makes.
const AT_ONCE: usize = 8;
const TENANTS: usize = 1000;
const HOSTS_OF_A_TENANT: usize = 10;
const HOSTS: usize = 10_000;
const ROUTES: usize = 1000;

fn main() -> Result<()> {
    let want: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    // The API server is killed with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let numbers = want.iter().skip(1).map(|text| text.parse::<usize>());
    let numbers: Vec<usize> = numbers.collect::<Result<_, _>>().context("a number")?;
    let count = |usual: usize| numbers.first().copied().unwrap_or(usual);
    let tenants = Tenants {
        tenants: count(TENANTS),
        hosts: numbers.get(1).copied().unwrap_or(HOSTS_OF_A_TENANT),
    };
    match want.first().map(String::as_str) {
        Some("hosts") => runtime.block_on(hosts::hosts()),
        Some("mass") => runtime.block_on(mass::mass(tenants)),
        Some("start") => runtime.block_on(start::start(tenants)),
        Some("own") => runtime.block_on(own::own(count(HOSTS), Parents::ListenerSets)),
        Some("gateways") => runtime.block_on(own::own(count(HOSTS), Parents::Gateways)),
        Some("apply") => runtime.block_on(apply::apply(count(ROUTES))),
        Some(other) => {
            bail!("nothing is called {other}: expected hosts, mass, start, own, gateways or apply")
        }
        None => {
            runtime.block_on(hosts::hosts())?;
            runtime.block_on(mass::mass(tenants))?;
            runtime.block_on(start::start(tenants))?;
            runtime.block_on(own::own(HOSTS, Parents::ListenerSets))?;
            runtime.block_on(own::own(HOSTS, Parents::Gateways))?;
            runtime.block_on(apply::apply(ROUTES))
        }
    }
}

/// Applies objects, several at a time.
async fn put_all(cluster: &Cluster, all: Vec<Value>) -> Result<()> {
    let puts = all
        .into_iter()
        .map(|object| async { cluster.server.put(object).await.map(|_| ()) });
    stream::iter(puts)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

/// Waits until something holds, with a limit that suits any machine.
async fn until(what: &str, good: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(1800);
    while !good().await? {
        if Instant::now() > deadline {
            bail!("not in time: {what}");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// Returns the writes since `since`, once no write came for longer than the debounce of statuses.
async fn quiet(cluster: &Cluster, since: usize) -> Result<Vec<Request>> {
    let mut before = cluster.writes()?.len();
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = cluster.writes()?;
        if now.len() == before {
            return Ok(now[since..].to_vec());
        }
        before = now.len();
    }
}

fn median<T: Ord + Copy>(mut all: Vec<T>) -> T {
    all.sort();
    all[all.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Returns the processor time of all threads of the controller so far.
fn processor(controller: &Gatewright) -> Result<Duration> {
    usage::threads_time(controller.pid())
}

/// Memory of the controller, in megabytes.
struct Memory {
    /// Resident memory.
    now: f64,
    /// The anonymous part of it, which is not mapped from a file.
    own: f64,
    /// Peak of the resident memory.
    most: f64,
}

impl Memory {
    fn of(controller: &Gatewright) -> Result<Self> {
        fn field(name: &str, controller: &Gatewright) -> std::result::Result<f64, anyhow::Error> {
            Ok::<f64, anyhow::Error>(
                usage::memory(controller.pid(), name)? as f64 / 1024.0 / 1024.0,
            )
        }
        Ok(Self {
            now: field("VmRSS", controller)?,
            own: field("RssAnon", controller)?,
            most: field("VmHWM", controller)?,
        })
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.1} MB resident ({:.1} MB of it not of files), at most {:.1} MB",
            self.now, self.own, self.most
        )
    }
}
