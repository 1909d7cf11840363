//! Checks of endpoints that never answer: Envoy reports no change of a cluster as applied before
//! the first checks of another one have ended. So they are open only to whom the operator trusts.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::{Instant, sleep};

use crate::site::{FORWARD, LIMIT, Site, route, service};

/// The longest time that a check may take.
const CHECK: Duration = Duration::from_secs(2);

/// A policy that has mallory's endpoints checked.
fn policy(step: usize) -> String {
    let interval = 2 + step;
    format!(
        "apiVersion: gatewright.io/v1alpha1\nkind: TrafficPolicy\nmetadata: {{name: web, namespace: mallory}}\n\
         spec:\n  targetRefs: [{{group: \"\", kind: Service, name: web}}]\n  healthCheck:\n    \
         active: {{type: HTTP, http: {{path: /}}, interval: {interval}s, timeout: 2s}}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn checks_are_not_open_to_tenants() -> Result<()> {
    let site = Site::start(&[]).await?;
    site.save(
        "mallory.yaml",
        &route("mallory", "web", "mallory.example.org", FORWARD),
    )?;
    site.save("mallory-policy.yaml", &policy(1))?;
    let deadline = Instant::now() + LIMIT;
    loop {
        let told = site
            .ask(&["status", "trafficpolicy/web", "-n", "mallory"])?
            .1;
        if told.contains("limits.namespace.healthChecks is 0") {
            break;
        }
        ensure!(Instant::now() < deadline, "{told}");
        sleep(Duration::from_millis(50)).await;
    }
    site.alice_is_unharmed(1).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
#[allow(clippy::print_stdout, reason = "what was measured is worth reading")]
async fn open_checks_hold_up_a_neighbour_for_two_of_them_at_most() -> Result<()> {
    let site = Site::start_alone(&["--set", "limits.namespace.healthChecks=1"]).await?;
    // Connections wait in its queue, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    site.save(
        "mallory-service.yaml",
        &service("mallory", silent.local_addr()?),
    )?;
    site.save(
        "mallory.yaml",
        &route("mallory", "web", "mallory.example.org", FORWARD),
    )?;
    site.alice_is_unharmed(0).await?;
    let mut longest = Duration::ZERO;
    for step in 1..6 {
        site.save("mallory-policy.yaml", &policy(step))?;
        longest = longest.max(site.alice_is_served(step).await?);
    }
    println!("longest: {longest:?}");
    ensure!(longest < 2 * CHECK + CHECK / 2, "{longest:?}");
    Ok(())
}
