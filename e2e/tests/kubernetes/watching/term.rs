//! A lease holder that cannot renew the Lease.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::apiserver::proxy::Proxy;
use e2e::cluster::{ACCOUNT, Cluster, is_true};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use e2e::tenants::GATEWAY;

/// Longer than that of other tests: a fifteenth of it is the time in which a slow machine has to
/// give up.
const LEASE: SignedDuration = SignedDuration::from_secs(9);
/// Duration of a write, in milliseconds. Longer than what is left of the Lease when its holder
/// starts no more writes.
const WAY: u64 = 4000;

fn gateway(number: u16) -> Value {
    let listener = json!({"name": "http", "protocol": "HTTP", "port": 9000 + number});
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": format!("g{number}"), "namespace": "default"},
        "spec": {"gatewayClassName": "gatewright", "listeners": [listener]}})
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn a_replica_that_cannot_renew_the_lease_writes_nothing_when_another_may_hold_it()
-> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let proxy = Proxy::start(server, ACCOUNT).await?;
    let mut controller = cluster.replica_through_with("one", &proxy, &["--lease-seconds", "9"])?;
    controller.line("holding the lease").await?;
    server.put(gateway(0)).await?;
    let told = |o: &Value| is_true(&o["status"], "Accepted");
    cluster
        .until(GATEWAY, "Gateway", "default", "g0", told)
        .await?;

    // There is always something to write.
    proxy.weather.slow.store(WAY, Ordering::Relaxed);
    let busy = async |numbers: std::ops::Range<u16>| {
        for number in numbers {
            server.put(gateway(number)).await?;
            sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    busy(1..20).await?;
    proxy.weather.late.store(600_000, Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_secs(12);
    let mut next = 20;
    while Instant::now() < deadline {
        busy(next..next + 10).await?;
        next += 10;
    }
    let all = server.requests()?;
    let renewed = all
        .iter()
        .filter(|r| r.user == ACCOUNT && r.verb == "update" && r.resource == "leases")
        .map(|r| r.at)
        .max()
        .context("it was renewed")?;
    let written: Vec<_> = cluster
        .writes()?
        .into_iter()
        .filter(|r| r.came > renewed)
        .map(|r| r.came - renewed)
        .collect();
    let last = written
        .iter()
        .max_by(|a, b| a.compare(**b).expect("spans of seconds"))
        .context("it went on writing")?;
    let last = SignedDuration::try_from(*last)?;
    assert!(
        last < LEASE,
        "the last of {} writes came {last:?} after the last renewal",
        written.len()
    );

    // When it holds the Lease again, it continues.
    proxy.weather.slow.store(0, Ordering::Relaxed);
    proxy.weather.late.store(0, Ordering::Relaxed);
    cluster
        .until(
            GATEWAY,
            "Gateway",
            "default",
            &format!("g{}", next - 1),
            told,
        )
        .await?;
    Ok(())
}
