//! Admission webhooks that take longer than a request usually may: what they delay is written all
//! the same, and others are not delayed.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::cluster::{ACCOUNT, Cluster, condition};
use e2e::port::free_port;
use e2e::tenants::until;
use e2e::webhook::SlowWebhook;
use serde_json::Value;

use crate::fleet;

fn is_told(object: &Value) -> bool {
    let parents = object["status"]["parents"].as_array();
    parents.is_some_and(|parents| {
        parents
            .iter()
            .any(|parent| condition(parent, "Accepted").is_some())
    })
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn what_a_webhook_delays_is_written_and_others_are_not_delayed() -> Result<()> {
    // The shortest Lease, and the default one.
    for (lease, delay, slow) in [(3, 6, "slow-a"), (15, 25, "slow-b")] {
        let cluster = Cluster::start().await?;
        let server = &cluster.server;
        fleet::dedicated(&cluster).await?;
        let webhook = SlowWebhook::start(ACCOUNT, slow, Duration::from_secs(delay)).await?;
        server.put(webhook.configuration()).await?;
        let lease = format!("lease.seconds={lease}");
        let mut controller = cluster.controller_with("one", &["--set", &lease])?;
        controller.line("holding the lease").await?;
        let begun = Instant::now();
        let quick = format!("quick-{slow}");
        for namespace in [slow, &quick] {
            fleet::tenant(
                &cluster,
                namespace,
                "own",
                free_port()?,
                &["web.example.org"],
            )
            .await?;
        }
        let wait = async |namespace: &str| {
            for (api_version, kind, name) in [
                ("v1", "Service", "edge-own"),
                ("discovery.k8s.io/v1", "EndpointSlice", "edge-own-v4"),
            ] {
                let api = server.api(api_version, kind, namespace).await?;
                until("it is made", async || {
                    Ok(api.get_opt(name).await?.is_some())
                })
                .await?;
            }
            let routes = server.api(fleet::GATEWAY, "HTTPRoute", namespace).await?;
            until("the route has a status", async || {
                let route = routes.get("web").await?;
                Ok(is_told(&serde_json::to_value(route)?))
            })
            .await
        };
        wait(&quick).await?;
        let quick = begun.elapsed();
        wait(slow).await?;
        assert!(quick < begun.elapsed(), "others are not delayed: {quick:?}");
    }
    Ok(())
}
