//! Session tickets on a real Envoy, by `openssl s_client`.

use std::fs::read_to_string;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e::tls_sessions::{Client, VERSIONS};
use e2e_inside::world::{World, class, edge_route_to_web, edge_with, free_port, object, service};
use gatewright_core::model::TicketKeys;
use gatewright_core::translate::{Change, Fact};
use serde_json::json;
use tokio::time::sleep;

use super::hot_restart;

/// Longer than the time in which the Envoy of these tests drains a filter chain.
const DRAINED: Duration = Duration::from_secs(7);

/// The Secret of a host, with a self-signed certificate that names some hosts.
fn secret(host: &str, subject: &str, names: &[&str]) -> Result<Change> {
    let dir = tempfile::tempdir()?;
    let [key_file, chain] = ["key", "crt"].map(|name| dir.path().join(name));
    let names: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
    let mut openssl = Command::new("openssl");
    openssl
        .current_dir(dir.path())
        .args([
            "req", "-x509", "-nodes", "-days", "30", "-newkey", "rsa:2048",
        ])
        .args(["-keyout", "key", "-out", "crt", "-subj", subject])
        .args(["-addext", &format!("subjectAltName={}", names.join(","))]);
    let made = openssl.output().context("openssl")?;
    ensure!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    Ok(object(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": "default", "name": host},
        "stringData": {"tls.crt": read_to_string(chain)?, "tls.key": read_to_string(key_file)?}}),
    ))
}

fn keys(current: u8, others: &[u8]) -> Change {
    let others: Vec<[u8; 32]> = others.iter().map(|key| [*key; 32]).collect();
    Change::Fact(Fact::TicketKeys(Some(TicketKeys::new(
        [current; 32],
        &others,
    ))))
}

/// HTTPS listeners for hosts, of which some have the option.
fn listeners(port: u16, hosts: &[&str], resumed: &[&str]) -> Change {
    edge_with("gatewright.io/session-tickets", port, hosts, resumed)
}

const A: &str = "a.example.org";
const B: &str = "b.example.org";
const C: &str = "c.example.org";

/// A Gateway with the hosts [`A`], [`B`] and [`C`], and its client.
struct Site {
    world: World,
    client: Client,
    port: u16,
    _echo: Echo,
}

impl Site {
    /// Starts with hosts that have the option. The certificates of [`A`] and [`B`] name both.
    async fn start(resumed: &[&str]) -> Result<Self> {
        let port = free_port()?;
        let echo = Echo::start("web").await?;
        let hosts = [A, B, C];
        let mut changes = vec![class(), listeners(port, &hosts, resumed), keys(1, &[])];
        changes.extend(service("web", echo.address()));
        for (host, names) in [(A, &[A, B][..]), (B, &[A, B]), (C, &[C])] {
            changes.push(secret(host, "/CN=test", names)?);
            changes.push(edge_route_to_web(host));
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self {
            world: World::start(changes).await?,
            client: Client::of(address)?,
            port,
            _echo: echo,
        })
    }

    async fn ask_for(&self, resumed: &[&str]) -> Result<()> {
        let changed = listeners(self.port, &[A, B, C], resumed);
        self.world.settle(vec![changed]).await
    }

    fn probe(&self, host: &str) -> Probe {
        Probe::https(self.client.address, host)
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_host_with_the_option_resumes_its_own_sessions_and_others_do_not() -> Result<()> {
    let site = Site::start(&[A, B]).await?;
    let client = &site.client;
    ensure!(client.resumes(A)? && client.resumes(B)?, "with the option");
    ensure!(!client.resumes(C)?, "without the option");
    // The names and the issuer of their certificates are the same.
    for version in VERSIONS {
        ensure!(!client.resumes_at(A, B, version)?, "A at B, {version}");
        ensure!(!client.resumes_at(A, C, version)?, "A at C, {version}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn sessions_outlive_rotations_until_their_key_is_gone() -> Result<()> {
    let site = Site::start(&[A]).await?;
    for version in VERSIONS {
        site.world.settle(vec![keys(1, &[2])]).await?;
        let (_, session) = site.client.connect(A, version, None)?;
        for (rotated, expected) in [
            (keys(1, &[2]), true),
            (keys(2, &[1, 3]), true),
            (keys(3, &[2, 4]), false),
        ] {
            let text = format!("{version}: {rotated:?}");
            site.world.settle(vec![rotated]).await?;
            let is_resumed = site.client.accepts(A, version, &session)?;
            ensure!(is_resumed == expected, "{text}");
        }
    }
    // An Envoy that has the keys of the next period before another one.
    let (_, session) = site.client.connect(A, VERSIONS[1], None)?;
    site.world.settle(vec![keys(2, &[1, 3])]).await?;
    let is_resumed = site.client.accepts(A, VERSIONS[1], &session)?;
    ensure!(is_resumed, "the next key");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_renewed_certificate_resumes_and_one_of_another_issuer_does_not() -> Result<()> {
    let site = Site::start(&[A]).await?;
    for version in VERSIONS {
        site.world
            .settle(vec![secret(A, "/CN=test", &[A, B])?])
            .await?;
        let (_, session) = site.client.connect(A, version, None)?;
        site.world
            .settle(vec![secret(A, "/CN=test", &[A, B])?])
            .await?;
        let is_resumed = site.client.accepts(A, version, &session)?;
        ensure!(is_resumed, "renewed, {version}");
        site.ask_for(&[]).await?;
        let is_resumed = site.client.accepts(A, version, &session)?;
        ensure!(!is_resumed, "without the option, {version}");
        site.world
            .settle(vec![secret(A, "/CN=other", &[A])?])
            .await?;
        site.ask_for(&[A]).await?;
        let is_resumed = site.client.accepts(A, version, &session)?;
        ensure!(!is_resumed, "another certificate, {version}");
        ensure!(site.client.resumes(A)?, "its own sessions");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn hosts_come_and_go_without_the_connections_of_others() -> Result<()> {
    let site = Site::start(&[A]).await?;
    let mut held = Vec::new();
    for host in [A, B, C] {
        let probe = site.probe(host);
        let mut connection = probe.connect().await?;
        ensure!(connection.ask(&probe).await?.status == 200, "{host}");
        held.push((probe, connection));
    }
    for (resumed, what) in [
        (&[A, B][..], "B asks"),
        (&[A, B, C], "C, the last one without tickets, asks"),
        (&[A, C], "B asks no more"),
    ] {
        site.ask_for(resumed).await?;
        sleep(DRAINED).await;
        for (probe, connection) in &mut held {
            let answer = connection.ask(probe).await;
            let answer = answer.with_context(|| format!("{what}: {probe:?}"))?;
            ensure!(answer.status == 200, "{what}: {answer:?}");
        }
        for host in [A, B, C] {
            let is_resumed = site.client.resumes(host)?;
            ensure!(is_resumed == resumed.contains(&host), "{what}: {host}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn requests_for_another_host_are_misdirected() -> Result<()> {
    let site = Site::start(&[A, B]).await?;
    let probe = site.probe(A);
    for (host, expected) in [(A, 200), (B, 421), (C, 421), ("unknown.example.org", 404)] {
        let mut connection = probe.connect().await?;
        let answer = connection.ask(&site.probe(A).authority(host)).await?;
        ensure!(answer.status == expected, "{host}: {answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn sessions_outlive_a_hot_restart() -> Result<()> {
    let site = hot_restart::Site::new().await?;
    site.add_listener_with("gatewright.io/session-tickets")?;
    let (mut old, pid, load) = site.serving().await?;
    let client = Client::of(site.https)?;
    let (_, session) = client.connect("web.example.org", VERSIONS[1], None)?;
    let keys = site.state.path().join("session-tickets");
    ensure!(keys.is_file(), "no keys are kept");
    let admin = site.state.path().join("admin-of-envoy.sock");
    let admin = admin.display().to_string();
    let mut new = site.start(&["--take-over", "--envoy-admin", &admin])?;
    new.line("serves in place of").await?;
    ensure!(site.one().await? != pid, "the Envoy before is still there");
    let is_resumed = client.accepts("web.example.org", VERSIONS[1], &session)?;
    ensure!(is_resumed, "the keys are others");
    load.failures()?;
    drop(load);
    old.end().await?;
    site.end(new).await
}
