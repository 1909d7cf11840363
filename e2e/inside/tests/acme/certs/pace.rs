//! Cost of the self-check through our own Envoy, compared with the work of the CA.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::gatewright::Gatewright;
use e2e::pebble::{Options, Pebble};
use tokio::time::Instant;

use super::site::Site;

const HOSTS: usize = 60;

/// Returns the time from the publication of hosts beside a served one until they are served.
/// Without a self-check the first order may be too early for Envoy, so that it is placed with one.
async fn until_served(preflight: &str) -> Result<Duration> {
    let mut site = Site::with(
        Pebble::start(&Options {
            eager: true,
            ..Options::default()
        })
        .await?,
    )
    .await?;
    let names: Vec<String> = (0..HOSTS).map(|i| format!("h{i}.example.com")).collect();
    let hosts: Vec<_> = names.iter().map(|name| (name.as_str(), "acme")).collect();
    site.publish(&hosts[..1])?;
    site.start(&["--set", "issuers.acme.preflight=Strict"])?;
    site.served(&names[0]).await?;
    if preflight != "Strict" {
        site.program = None;
        site.start(&["--set", &format!("issuers.acme.preflight={preflight}")])?;
        site.served(&names[0]).await?;
    }
    let start = Instant::now();
    site.publish(&hosts)?;
    for name in &names {
        ensure!(site.served(name).await?.status == 200);
    }
    let all = start.elapsed();
    ensure!(
        preflight == "Skip" || site.pebble.orders() == HOSTS,
        "{} orders",
        site.pebble.orders()
    );
    let log = site
        .program
        .as_ref()
        .map(Gatewright::output)
        .context("it runs")?;
    ensure!(
        !log.contains("the CA is asked to validate all the same"),
        "{log}"
    );
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Pebble"]
async fn a_self_check_waits_for_nothing_but_the_answer() -> Result<()> {
    let with = until_served("Strict").await?;
    let without = until_served("Skip").await?;
    // When each self-check waited for the end of its connection, it took ten times as long.
    ensure!(
        with < without * 2 + Duration::from_secs(2),
        "{with:?} with a self-check, {without:?} without"
    );
    Ok(())
}
