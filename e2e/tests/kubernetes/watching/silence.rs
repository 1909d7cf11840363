//! An API server that accepts connections and never answers.

use std::sync::atomic::Ordering;

use anyhow::Result;
use e2e::apiserver::proxy::Proxy;
use e2e::cluster::{ACCOUNT, Cluster};

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn what_is_never_answered_is_asked_again() -> Result<()> {
    let cluster = Cluster::start().await?;
    let proxy = Proxy::start(&cluster.server, ACCOUNT).await?;
    proxy.weather.silent.store(true, Ordering::Relaxed);
    let mut controller = cluster.replica_through("one", &proxy)?;
    let line = controller.line("Gateway: the API server does not answer").await?;
    assert!(line.contains("nothing came within"), "{line}");
    // Requests until now are never answered.
    proxy.weather.silent.store(false, Ordering::Relaxed);
    controller.line("the view is complete").await?;
    controller.line("holding the lease").await?;
    Ok(())
}
