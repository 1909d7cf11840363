//! What the program does while nothing happens.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::pebble::{Options, Pebble};
use e2e::usage::wake_ups;
use tokio::time::{Instant, sleep};

use super::site::{LIMIT, Site};

/// The time over which wake-ups are counted. On a busy machine there are fewer, not more.
const WINDOW: Duration = Duration::from_secs(10);
/// The most wake-ups of an idle program and its threads in that time. The heartbeat of the main
/// loop, the threads that watch files, and Envoy's log take one each second.
const MOST: u64 = 200;

/// Returns once the program has not woken up more often in [`WINDOW`], whatever its certificates.
async fn idle(certificates: usize) -> Result<()> {
    let pebble = Pebble::start(&Options {
        always_valid: true,
        eager: true,
        ..Options::default()
    })
    .await?;
    let mut site = Site::with(pebble).await?;
    site.start(&["--set", "issuers.acme.preflight=Skip"])?;
    let names: Vec<String> = (0..certificates)
        .map(|i| format!("h{i}.example.com"))
        .collect();
    let hosts: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "acme")).collect();
    site.publish(&hosts)?;
    for name in &names {
        site.served(name).await?;
    }
    ensure!(site.pebble.issued() == certificates, "one for each host");
    let pid = site.program.as_ref().context("it runs")?.pid();
    let until = Instant::now() + LIMIT;
    loop {
        let before = wake_ups(pid)?;
        sleep(WINDOW).await;
        // A thread that has ended is not counted any more.
        let count = wake_ups(pid)?.saturating_sub(before);
        if count <= MOST {
            return Ok(());
        }
        ensure!(
            Instant::now() < until,
            "{count} wake-ups in {WINDOW:?} with {certificates} certificates"
        );
    }
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn an_idle_program_wakes_up_as_rarely_with_many_certificates_as_with_one() -> Result<()> {
    idle(1).await?;
    idle(60).await
}
