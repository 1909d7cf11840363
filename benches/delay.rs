//! Latency of alice's changes while mallory changes hers, and the part of it that Envoy causes.
//!
//! `cargo bench -p e2e --bench delay`. Two tenants of one Gateway in `standalone`, on a real Envoy.
//! Prints a table and asserts nothing about time.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../e2e/tests/isolation/site.rs"]
mod site;

use std::time::Duration;

use anyhow::Result;
use e2e::usage::main_thread_time;
use site::{FORWARD, Site, route};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, interval};

/// Changes of alice's for each row of the table.
const ROUNDS: usize = 60;
/// Interval at which mallory writes all of hers.
const PACE: Duration = Duration::from_millis(100);

/// Returns mallory's routes, which differ from one version to the next.
fn routes(count: usize, version: usize) -> String {
    let one = |number: usize| {
        let rules = format!(
            "[{{matches: [{{path: {{value: /v{version}}}}}, {{path: {{type: RegularExpression, value: \"/[a-z]{{1,9}}/{version}\"}}}}], \
             backendRefs: [{{name: web, port: 80}}]}}]"
        );
        route(
            "mallory",
            &format!("r{number}"),
            &format!("m{number}.example.org"),
            &rules,
        )
    };
    (0..count).map(one).collect()
}

/// Adds alice's hosts one after the other; returns the time from the file to the first answer of
/// her backend for each.
async fn alices(site: &Site, prefix: &str) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let name = format!("{prefix}-{round}");
        let host = format!("{prefix}-{round}.example.org");
        let probe = site.plain(&host);
        let began = Instant::now();
        site.save(
            &format!("{name}.yaml"),
            &route("alice", &name, &host, FORWARD),
        )?;
        site.answered_by(&probe, "alice", Duration::from_millis(1))
            .await?;
        took.push(began.elapsed());
    }
    took.sort();
    Ok(took)
}

/// Returns the number of responses that Envoy has answered, and the sum of their latencies in
/// seconds.
async fn answered(site: &Site) -> Result<(f64, f64)> {
    let mut admin = UnixStream::connect(site.state.path().join("admin.sock")).await?;
    admin
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n")
        .await?;
    let mut metrics = String::new();
    admin.read_to_string(&mut metrics).await?;
    fn sum(name: &str, metrics: &str) -> f64 {
        let values = metrics
            .lines()
            .filter(|line| line.contains(name))
            .filter_map(|line| line.rsplit(' ').next());
        values.filter_map(|value| value.parse::<f64>().ok()).sum()
    }
    Ok((
        sum("xds_ack_latency_seconds_count", &metrics),
        sum("xds_ack_latency_seconds_sum", &metrics),
    ))
}

#[tokio::main]
async fn main() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    println!(
        "alice adds a host              median      p95      max   Envoy's main thread   a response is answered after"
    );
    let envoy = site.envoy()?;
    for (what, count) in [
        ("alone", 0),
        ("beside 50 routes", 50),
        ("beside 500 routes", 500),
    ] {
        let mallorys = async {
            let mut tick = interval(PACE);
            let mut version = 0;
            loop {
                tick.tick().await;
                version += 1;
                if count > 0 {
                    site.save("mallory-routes.yaml", &routes(count, version))?;
                }
            }
            #[allow(unreachable_code, reason = "it says what the type is")]
            Ok::<(), anyhow::Error>(())
        };
        let prefix = format!("d{count}");
        let began = Instant::now();
        let before = main_thread_time(envoy)?;
        let (responses, seconds) = answered(&site).await?;
        let took = tokio::select! {
            took = alices(&site, &prefix) => took?,
            failed = mallorys => return failed,
        };
        let at = |part: usize| {
            took[(took.len() * part / 100).min(took.len() - 1)].as_secs_f64() * 1000.0
        };
        let busy = (main_thread_time(envoy)? - before).as_secs_f64()
            / began.elapsed().as_secs_f64()
            * 100.0;
        let now = answered(&site).await?;
        let mean = (now.1 - seconds) / (now.0 - responses) * 1000.0;
        let half = at(50);
        let most = at(95);
        let all = at(100);
        println!(
            "{what:<28} {half:>6.0} ms {most:>5.0} ms {all:>5.0} ms {busy:>19.0} % {mean:>27.1} ms"
        );
    }
    Ok(())
}
