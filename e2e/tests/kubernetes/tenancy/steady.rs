//! In the steady state nothing is written, also while others keep rewriting their own fields. The
//! same with a thousand TenantGateways is `benches/kubernetes/mass.rs`.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tokio::time::{Instant, sleep};

use e2e::tenants::{cluster, namespace, program, quiet, rewrite, route, tenant, until_ready};

const TENANTS: usize = 5;
const HOSTS: usize = 4;
const STEADY: Duration = Duration::from_secs(5);

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn a_steady_state_writes_nothing_whatever_others_say() -> Result<()> {
    let cluster = cluster().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    let space = |number: usize| format!("tenant-steady-{}", number % TENANTS);
    for number in 0..TENANTS {
        let apex = format!("s{number}.example.org");
        namespace(server, &space(number), &apex).await?;
        server
            .put(tenant(&space(number), json!({"apex": apex})))
            .await?;
        for host in 0..HOSTS {
            let name = format!("h{host}");
            server
                .put(route(
                    &space(number),
                    &name,
                    &space(number),
                    &[&format!("{name}.{apex}")],
                ))
                .await?;
        }
    }
    quiet(&cluster, 0).await?;
    for number in 0..TENANTS {
        program(server, "Gateway", &space(number), "cozystack").await?;
    }
    for number in 0..TENANTS {
        until_ready(&cluster, &space(number), "Reconciled").await?;
    }
    let before = cluster.quiet().await?;

    let began = Instant::now();
    let mut edits = 0;
    while began.elapsed() < STEADY {
        rewrite(server, &space(edits), edits).await?;
        edits += 1;
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!(cluster.writes()?[before..], [], "{edits} edits by others");
    assert!(edits > TENANTS, "only {edits} edits");
    Ok(())
}
