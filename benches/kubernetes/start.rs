//! A start with many processed TenantGateways; then a steady state, also while others rewrite their
//! own fields.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::cluster::Cluster;
use e2e::gatewright::Gatewright;

use crate::many::{self, Tenants};
use crate::{Memory, processor};
use e2e::tenants::{self, rewrite};

const STEADY: Duration = Duration::from_secs(60);

pub(crate) async fn start(wanted: Tenants) -> Result<()> {
    let cluster = tenants::cluster().await?;
    many::carried_out(&cluster, wanted).await?;
    let before = cluster.writes()?.len();
    let began = Instant::now();
    let mut controller = cluster.controller("bench")?;
    controller.line("the view is complete").await?;
    let ready = began.elapsed();
    controller.line("holding the lease").await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    println!(
        "{wanted}, a start with all of it there: ready in {:.1} s, {} writes in 30 s, {:.1} s of processor",
        ready.as_secs_f64(),
        cluster.writes()?.len() - before,
        processor(&controller)?.as_secs_f64()
    );
    println!("memory after it: {}", Memory::of(&controller)?);
    steady(&cluster, &controller, wanted.tenants).await
}

/// Measures a minute without changes, and one in which other field managers write their own fields
/// as fast as possible.
async fn steady(cluster: &Cluster, controller: &Gatewright, tenants: usize) -> Result<()> {
    let before = cluster.writes()?.len();
    let used = processor(controller)?;
    tokio::time::sleep(STEADY).await;
    println!(
        "a minute without events: {} writes, {:.2} s of processor",
        cluster.writes()?.len() - before,
        (processor(controller)? - used).as_secs_f64()
    );
    let before = cluster.writes()?.len();
    let used = processor(controller)?;
    let began = Instant::now();
    let mut edits = 0;
    while began.elapsed() < STEADY {
        rewrite(&cluster.server, &many::space(edits % tenants), edits).await?;
        edits += 1;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    println!(
        "a minute with {} edits of others: {} writes, {:.2} s of processor",
        edits * 4,
        cluster.writes()?.len() - before,
        (processor(controller)? - used).as_secs_f64()
    );
    Ok(())
}
