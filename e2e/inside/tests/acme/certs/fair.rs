//! Tenants that share an account share the rest of its limits fairly.

use std::fs;

use anyhow::{Context, Result, ensure};
use e2e::gatewright::CONFIGURATION;
use e2e::testca::TestCa;
use e2e_inside::world::free_port;
use tokio::time::{Instant, sleep};

use super::site::{LIMIT, Site};

/// More hosts than orders that the limit allows: a fifth of a hundred is reserved.
const HERS: usize = 110;
const LEFT: usize = 80;
/// Most listeners of a Gateway or ListenerSet.
const MOST: usize = 64;

fn listeners(hosts: &[String], port: u16) -> String {
    hosts
        .iter()
        .enumerate()
        .map(|(i, host)| {
            format!(
                "  - {{name: l{i}, hostname: {host}, protocol: HTTPS, port: {port}, \
             tls: {{options: {{gatewright.io/issuer: public}}}}}}\n"
            )
        })
        .collect()
}

/// A Gateway with these hosts, and further ListenerSets if there are too many for it.
fn tenant(namespace: &str, hosts: &[String], port: u16) -> String {
    let mut text = String::new();
    for (i, part) in hosts.chunks(MOST).enumerate() {
        let listeners = listeners(part, port);
        text += &match i {
            0 => format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
                 metadata: {{name: edge, namespace: {namespace}}}\nspec:\n  gatewayClassName: ours\n  \
                 allowedListeners: {{namespaces: {{from: Same}}}}\n  listeners:\n{listeners}---\n"
            ),
            _ => format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\n\
                 metadata: {{name: more{i}, namespace: {namespace}}}\nspec:\n  parentRef: {{name: edge}}\n  \
                 listeners:\n{listeners}---\n"
            ),
        };
    }
    text
}

#[tokio::test]
#[ignore = "builds the program"]
async fn a_tenant_whose_hosts_all_fail_leaves_the_next_order_to_another() -> Result<()> {
    let mut site = Site::new().await?;
    let ca = TestCa::start().await?;
    let hers: Vec<String> = (0..HERS)
        .map(|i| format!("www.mallory{i}.example"))
        .collect();
    ca.behave(|b| b.failing = hers.iter().cloned().collect());
    let issuers = site.state.path().join("issuers.yaml");
    // One more order every 36 seconds.
    fs::write(
        &issuers,
        format!(
            "{CONFIGURATION}issuers:\n  public:\n    directory: \"{}\"\n    agreeToTerms: true\n    preflight: Skip\n    \
             limits: {{orders: {{count: 100, hours: 1}}}}\n",
            ca.directory()
        ),
    )?;
    site.save("mallory.yaml", &tenant("mallory", &hers, site.port))?;
    site.start_before(&["--no-envoy", "--config", &issuers.display().to_string()])?;
    fn orders(ca: &TestCa) -> usize {
        ca.counts().orders.values().sum::<usize>()
    }
    let until = Instant::now() + LIMIT;
    while orders(&ca) < LEFT {
        ensure!(
            Instant::now() < until,
            "{} orders\n{}",
            orders(&ca),
            site.output()
        );
        sleep(std::time::Duration::from_millis(50)).await;
    }
    let alices = "www.alice.example";
    site.save(
        "alice.yaml",
        &tenant("alice", &[alices.to_owned()], free_port()?),
    )?;
    let row = site.row(alices, |row| row["expires"].is_string()).await?;
    ensure!(row["lastError"].is_null(), "{row}");
    // Those that were never tried come after her, and so do those that failed and are due again.
    let before_hers = orders(&ca)
        .checked_sub(LEFT + 1)
        .context("her order is one of them")?;
    ensure!(
        before_hers <= 2,
        "{before_hers} orders of mallory's were placed before alice's"
    );
    Ok(())
}
