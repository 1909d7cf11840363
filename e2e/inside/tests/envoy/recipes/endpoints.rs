//! How backends are reached, and which of them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};

use super::site::{LIMIT, Site, answered_by};

pub(super) async fn mirror(site: &Site) -> Result<()> {
    let before = site.next.requests();
    answered_by(&site.https("mirror.example.org"), "web").await?;
    let deadline = Instant::now() + LIMIT;
    while site.next.requests() == before {
        ensure!(Instant::now() < deadline, "no copy arrives");
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

pub(super) async fn timeouts_and_retries(site: &Site) -> Result<()> {
    let probe = site.https("slow.example.org");
    probe.clone().path("/delay/20000").answered(504).await?;
    let before = site.web.requests();
    probe.path("/status/503").answered(503).await?;
    let attempts = site.web.requests() - before;
    ensure!(attempts == 3, "{attempts} attempts, not one and two more");
    Ok(())
}

pub(super) async fn external_name(site: &Site) -> Result<()> {
    let answer = site.https("partner.example.org").answered(200).await?;
    let seen: serde_json::Value = serde_json::from_slice(&answer.body)?;
    ensure!(seen["sni"] == "api.partner.example", "{seen}");
    Ok(())
}

pub(super) async fn failing_endpoints(site: &Site) -> Result<()> {
    let probe = site.https("cart.example.org");
    let deadline = Instant::now() + LIMIT;
    let (mut failed, mut in_a_row) = (0, 0);
    while in_a_row < 40 {
        match probe.send().await?.status {
            200 => in_a_row += 1,
            503 => {
                failed += 1;
                in_a_row = 0;
            }
            other => ensure!(other == 200, "{other}"),
        }
        ensure!(Instant::now() < deadline, "{failed} requests failed");
    }
    // A request may be on its way to the endpoint while it is taken out.
    ensure!((5..15).contains(&failed), "{failed} requests failed, not 5");
    Ok(())
}

pub(super) async fn sticky_clients(site: &Site) -> Result<()> {
    let probe = site.https("sticky.example.org");
    let mut reached = BTreeSet::new();
    for _ in 0..100 {
        let answer = probe.answered(200).await?;
        let name = answer.echoed("name")?;
        let cookie = answer.header("set-cookie").context("a cookie")?;
        let (cookie, _) = cookie.split_once(';').context("its attributes")?;
        ensure!(cookie.starts_with("shop-client="), "{cookie}");
        let client = probe.clone().header("cookie", cookie);
        for _ in 0..5 {
            let again = client.answered(200).await?.echoed("name")?;
            ensure!(again == name, "{again}, and before {name}");
        }
        reached.insert(name.to_string());
        if reached.len() == 2 {
            return Ok(());
        }
    }
    anyhow::bail!("all clients are at {reached:?}")
}

pub(super) async fn backend_tls(site: &Site) -> Result<()> {
    let answer = site.https("ledger.example.org").answered(200).await?;
    let name = answer.echoed("sni")?;
    ensure!(name == "ledger.shop.internal", "{name}");
    Ok(())
}
