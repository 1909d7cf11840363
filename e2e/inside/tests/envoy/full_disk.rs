//! The disk of the private directory is full: hosts stay served, changes go live, and writes that
//! failed are repeated once there is space.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::disk::Disk;
use e2e::probe::Probe;
use e2e_inside::world::free_port;
use tokio::time::{Instant, sleep};

use super::hot_restart::{ANSWERS, Site, TOOK_OVER, configured, route};

/// A namespace with claims for hostnames that nobody had. Without a backend: it redirects.
const NEIGHBOUR: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge, namespace: bob}\n\
    spec:\n  gatewayClassName: ours\n  listeners:\n  LISTENERS\n---\n\
    apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: away, namespace: bob}\n\
    spec:\n  parentRefs: [{name: edge}]\n  rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: a.example}}]}]\n";
const HOST: &str = "bob.example.net";
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
#[ignore = "needs Envoy, and root for a disk of its own: e2e/tools install envoy"]
async fn a_full_disk_costs_no_request_and_holds_up_nobody() -> Result<()> {
    let site = Site::new().await?;
    let disk = Disk::mount(site.state.path())?;
    let (mut program, _, load) = site.serving().await?;
    load.more(ANSWERS).await?;
    let ownership = || fs::read_to_string(site.state.path().join("ownership"));

    disk.fill()?;
    fs::write(site.manifests.path().join("late.yaml"), route("late"))?;
    program
        .line("httproute default/late: 1 host changed, acked 1/1")
        .await?;
    // Each port is a line in the file: more than what is left of its last page.
    let ports = (0..60).map(|_| free_port()).collect::<Result<Vec<u16>>>()?;
    let listeners: String = ports
        .iter()
        .map(|port| format!("  - {{name: l{port}, protocol: HTTP, port: {port}}}\n"))
        .collect();
    let manifest = NEIGHBOUR.replace("  LISTENERS\n", &listeners);
    fs::write(site.manifests.path().join("bob.yaml"), manifest)?;
    program.line("ownership: No space left on device").await?;
    redirected(ports[7]).await?;
    assert_eq!(site.status("late.example.org").await?, 200);
    load.more(ANSWERS).await?;

    // A start needs no space either.
    drop(program);
    let mut program = site.start(&[])?;
    program.line(TOOK_OVER).await?;
    configured(&mut program).await?;
    redirected(ports[7]).await?;
    load.more(ANSWERS).await?;
    load.failures()?;
    drop(load);

    // Nor does another Envoy.
    Command::new("kill")
        .args(["-KILL", &site.one().await?.to_string()])
        .status()?;
    program.line("envoy: started, process").await?;
    redirected(ports[7]).await?;

    disk.free()?;
    program.line("records that waited are written").await?;
    assert!(
        ownership()?
            .lines()
            .all(|line| line.starts_with('{') && line.ends_with('}')),
        "{}",
        ownership()?
    );
    assert!(ownership()?.contains("bob"));
    Ok(())
}

/// Waits until the neighbour's host answers.
async fn redirected(port: u16) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = Probe::http(address, HOST).send().await;
        if answer.as_ref().is_ok_and(|answer| answer.status == 302) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{HOST}: {answer:?}");
        sleep(Duration::from_millis(50)).await;
    }
}
