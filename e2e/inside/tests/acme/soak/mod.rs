//! Hosts come, change and go for a long time, while clients send requests: no request to a live
//! host fails, and what the program and its Envoy hold does not grow.
//!
//! `GATEWRIGHT_SOAK_SECONDS` sets the duration, and `GATEWRIGHT_SOAK_SEED` the seed (`make soak`).

mod churn;
mod clients;
mod history;
mod host;
mod sample;

use std::time::Duration;

use anyhow::Result;
use e2e::setting::setting;

use self::churn::Churn;
use self::sample::{Sample, compare};

/// Usual duration in seconds, for a run beside other tests.
const SECONDS: u64 = 30;
/// Usual seed.
const SEED: u64 = 1;
/// Fewest samples: each quarter of a run has some.
const SAMPLES: usize = 8;
/// Reports of a run's progress.
const REPORTS: u32 = 10;
/// The longest time that a connection lasts (`edge` in the configuration).
const CONNECTION: Duration = Duration::from_secs(3600);

/// Runs rounds of steps for so long, with a sample after each.
#[allow(
    clippy::print_stderr,
    reason = "a long run shows its progress, and its figures at the end"
)]
async fn soak(churn: &mut Churn, duration: Duration) -> Result<Vec<Sample>> {
    let mut samples = vec![Sample::take(churn).await?];
    let mut reports = 1;
    while churn.clients.elapsed() < duration || samples.len() < SAMPLES {
        churn.round(samples.len() as u64).await?;
        let sample = Sample::take(churn).await?;
        churn.clients.check();
        if sample.at > duration / REPORTS * reports {
            reports += 1;
            eprintln!(
                "{:>5.0} s: {} steps, {} requests over {} connections, {} hosts; {sample}",
                sample.at.as_secs_f64(),
                sample.steps,
                churn.clients.answers(),
                churn.clients.connections(),
                churn.hosts()
            );
        }
        samples.push(sample);
    }
    Ok(samples)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Envoy and Pebble"]
#[allow(
    clippy::print_stderr,
    reason = "the seed is what a failure is repeated by"
)]
async fn no_request_fails_and_nothing_grows_while_hosts_come_and_go() -> Result<()> {
    let duration = Duration::from_secs(setting("GATEWRIGHT_SOAK_SECONDS", SECONDS)?);
    let seed = setting("GATEWRIGHT_SOAK_SEED", SEED)?;
    eprintln!(
        "GATEWRIGHT_SOAK_SEED={seed} GATEWRIGHT_SOAK_SECONDS={}",
        duration.as_secs()
    );
    let mut churn = Churn::start(seed).await?;
    let samples = soak(&mut churn, duration).await;
    // A panic makes the programs print the ends of their logs.
    let samples = samples.unwrap_or_else(|error| panic!("{error:#}"));
    let comparison = compare(&samples);
    eprintln!(
        "{} steps, {} requests over {} connections, {} certificates from Pebble\n{}",
        churn.steps,
        churn.clients.answers(),
        churn.clients.connections(),
        churn.site.pebble.issued(),
        comparison.table
    );
    assert_eq!(
        comparison.grown,
        Vec::<String>::new(),
        "it grows:\n{}",
        comparison.table
    );
    let lifetimes = 1 + churn.clients.elapsed().as_secs() / CONNECTION.as_secs();
    assert!(
        churn.clients.steady_connections() <= churn.steady_clients() * lifetimes,
        "{} connections to hosts that never change",
        churn.clients.steady_connections()
    );
    Ok(())
}
