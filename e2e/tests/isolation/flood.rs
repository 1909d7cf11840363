//! A flood of TLS handshakes for unknown names, as fast as clients can, where names are collapsed
//! into one entry of the SNI matcher, below a parent or of all domains: each of these names makes
//! Envoy request a certificate.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::port::free_port;
use e2e::probe::Probe;
use rustls_pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::site::{FORWARD, LIMIT, Site, envoy_stat, route};

/// Duration of the flood in seconds, unless `$GATEWRIGHT_FLOOD_SECONDS` sets another one.
const FLOOD: u64 = 8;
/// Unknown names per second, by all senders.
const RATE: u64 = 5_000;
/// Connections that one sender keeps open, each until its name is answered or others have taken its
/// place.
const OPEN: usize = 400;
const SENDERS: usize = 4;
/// More than the number of names at which a parent's names are collapsed into one wildcard.
const SIBLINGS: usize = 24;
/// The number of domains with a name each at which these are collapsed.
const OWN_DOMAINS: usize = 64;
/// The hosts that are asked for during the flood.
const ASKED: usize = 23;
/// Time limit of a first handshake once its configuration is acknowledged.
const FIRST_HANDSHAKE: Duration = Duration::from_secs(1);

const LABEL: &str = "xxxxxxxxxxxxxxxx";

/// Returns a ClientHello for `xxxxxxxxxxxxxxxx.flood.example`, and the position of the label in it.
fn client_hello() -> Result<(Vec<u8>, usize)> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(format!("{LABEL}.flood.example"))?;
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name)?;
    let mut hello = Vec::new();
    connection.write_tls(&mut hello)?;
    let at = hello
        .windows(LABEL.len())
        .position(|window| window == LABEL.as_bytes())
        .context("the SNI is in it")?;
    Ok((hello, at))
}

/// Sends ClientHellos for new names at its part of [`RATE`], without waiting for answers.
async fn send(
    address: SocketAddr,
    seed: u64,
    sent: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Result<()> {
    let (mut hello, at) = client_hello()?;
    let mut open = VecDeque::with_capacity(OPEN);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    // A sender that is late catches up, so that the rate is reached on a busy machine as well.
    let mut pace = interval(Duration::from_secs(1) * SENDERS as u32 / RATE as u32);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while !stop.load(Ordering::Relaxed) {
        pace.tick().await;
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        hello[at..at + LABEL.len()].copy_from_slice(format!("{state:016x}").as_bytes());
        let socket = TcpSocket::new_v4()?;
        // A closed connection occupies no local port.
        socket.set_zero_linger()?;
        // A full backlog is expected in a flood; it goes on.
        let Ok(mut stream) = socket.connect(address).await else {
            continue;
        };
        if stream.write_all(&hello).await.is_ok() {
            sent.fetch_add(1, Ordering::Relaxed);
            open.push_back(stream);
        }
        if open.len() >= OPEN {
            open.pop_front();
        }
    }
    Ok(())
}

/// The name of a host below the flooded domain.
fn sibling(host: usize) -> String {
    format!("h{host}.flood.example")
}

/// The name of a host with a domain of its own, below one that has a CA.
fn own_domain(host: usize) -> String {
    format!("www.h{host}.shops.example")
}

/// A Gateway of the platform with a listener for each of these hosts.
fn gateway(port: u16, hosts: &[String]) -> String {
    let mut text =
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: flooded, namespace: infra}\n\
                    spec:\n  gatewayClassName: ours\n  listeners:\n"
            .to_owned();
    for (number, host) in hosts.iter().enumerate() {
        text += &format!(
            "  - {{name: h{number}, hostname: {host}, protocol: HTTPS, port: {port}, \
             allowedRoutes: {{namespaces: {{from: All}}}}, tls: {{options: {{gatewright.io/issuer: internal-ca}}}}}}\n"
        );
    }
    text
}

/// Returns how many connections of Envoy to the program have ended: that of its resources and, of
/// each worker, one for what it reports.
async fn ended(site: &Site) -> Result<u64> {
    envoy_stat(
        site.state.path(),
        "cluster.gatewright-xds.upstream_cx_destroy",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_flood_of_unknown_names_leaves_the_stream_up_and_new_hosts_quick() -> Result<()> {
    flooded((0..SIBLINGS).map(sibling).collect()).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn so_does_one_where_each_host_has_a_domain_of_its_own() -> Result<()> {
    flooded((0..OWN_DOMAINS).map(own_domain).collect()).await
}

#[allow(clippy::print_stderr, reason = "what was measured is worth reading")]
async fn flooded(hosts: Vec<String>) -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    let port = free_port()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    site.save("flooded.yaml", &gateway(port, &hosts))?;
    let everywhere =
        route("alice", "flooded", "*.example", FORWARD).replace("name: edge", "name: flooded");
    site.save("flooded-route.yaml", &everywhere)?;
    let until = Instant::now() + LIMIT;
    while !Probe::https(address, &hosts[hosts.len() - 1])
        .send()
        .await
        .is_ok_and(|answer| answer.status == 200)
    {
        ensure!(
            Instant::now() < until,
            "not served\n{}",
            site.program.output()
        );
        sleep(Duration::from_millis(20)).await;
    }
    let before = ended(&site).await?;
    ensure!(before == 0, "{before} connections ended before the flood");

    let sent = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut senders = JoinSet::new();
    for seed in 0..SENDERS {
        senders.spawn(send(address, seed as u64 + 1, sent.clone(), stop.clone()));
    }
    let began = Instant::now();
    let seconds = std::env::var("GATEWRIGHT_FLOOD_SECONDS")
        .ok()
        .map_or(Ok(FLOOD), |text| text.parse())?;
    let mut times = Vec::new();
    for host in &hosts[..ASKED] {
        sleep(Duration::from_secs(seconds) / ASKED as u32).await;
        let asked = Instant::now();
        let answer = Probe::https(address, host).send().await;
        let so_far = sent.load(Ordering::Relaxed);
        let status = answer.map(|answer| answer.status);
        let is_good = status.as_ref().is_ok_and(|status| *status == 200);
        ensure!(
            is_good,
            "{host} after {so_far} unknown names: {status:?}\n{}",
            site.program.output()
        );
        times.push(asked.elapsed());
    }
    times.sort();
    // Two of them may be slow because of other load on the machine.
    let most = times[times.len() - 3];
    let slowest = times[times.len() - 1];
    ensure!(
        most < FIRST_HANDSHAKE,
        "first handshakes took {times:?}\n{}",
        site.program.output()
    );
    // A change of alice's during the flood.
    site.alice_is_unharmed(1).await?;
    let rate = sent.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    while let Some(sender) = senders.join_next().await {
        sender??;
    }
    eprintln!("{rate:.0} unknown names a second, slowest first handshake {slowest:?}");
    ensure!(
        rate > RATE as f64 / 4.0,
        "{rate:.0} names a second are no flood"
    );
    let after = ended(&site).await?;
    ensure!(
        after == 0,
        "{after} connections to the program ended\n{}",
        site.program.output()
    );
    site.alice_is_unharmed(2).await
}
