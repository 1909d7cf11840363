//! An API server that accepts connections and never answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::proxy::Proxy;
use e2e::cluster::{ACCOUNT, Cluster};
use e2e::gatewright::Gatewright;
use e2e::tenants::route;
use tokio::time::{Instant, sleep};

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn an_unanswered_request_is_repeated() -> Result<()> {
    let cluster = Cluster::start().await?;
    let proxy = Proxy::start(&cluster.server, ACCOUNT).await?;
    proxy.weather.silent.store(true, Ordering::Relaxed);
    let mut controller = cluster.replica_through("one", &proxy)?;
    let line = controller
        .line("Gateway: the API server does not answer")
        .await?;
    assert!(line.contains("nothing came within"), "{line}");
    // Requests until now are never answered.
    proxy.weather.silent.store(false, Ordering::Relaxed);
    controller.line("the view is complete").await?;
    controller.line("holding the lease").await?;
    Ok(())
}

/// Waits until what the metric says of routes is so.
async fn until_age(controller: &mut Gatewright, good: impl Fn(f64) -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let (_, metrics) = controller.probe("/metrics").await?;
        let start = "gatewright_kind_age_seconds{kind=\"HTTPRoute\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(start));
        let age: f64 = line
            .with_context(|| format!("no age of routes in\n{metrics}"))?
            .parse()?;
        if good(age) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "nothing was heard of routes for {age} s"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

/// The metric grows while nothing comes, and falls with the next event.
#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn it_is_told_for_how_long_nothing_was_heard_of_a_kind() -> Result<()> {
    let cluster = Cluster::start().await?;
    let mut controller = cluster.controller("one")?;
    controller.line("the view is complete").await?;
    until_age(&mut controller, |age| age > 5.0).await?;
    cluster
        .server
        .put(route("default", "later", "default", &["later.example.org"]))
        .await?;
    until_age(&mut controller, |age| age < 5.0).await
}
