//! Endpoints written by tenants: none leads to Envoy itself, to metadata services, or into a loop.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::port::free_port;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::site::{FORWARD, LIMIT, Site, named, route, service};

const HOST: &str = "mallory.example.org";

/// A TCP proxy that counts its connections. Stopped on drop.
struct Forwarder {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Forwarder {
    async fn to(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                // Far more than any test needs, and far less than would do harm.
                if count.fetch_add(1, Ordering::SeqCst) > 1000 {
                    return;
                }
                tokio::spawn(async move {
                    if let Ok(mut to) = TcpStream::connect(target).await {
                        drop(copy_bidirectional(&mut from, &mut to).await);
                    }
                });
            }
        });
        Ok(Self {
            address,
            connections,
            accepting,
        })
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// An EndpointSlice of mallory's with an address of any family.
fn listing(address: &str, port: u16) -> String {
    let family = if address.contains(':') {
        "IPv6"
    } else {
        "IPv4"
    };
    service("mallory", SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .replace(
            "addresses: [127.0.0.1]",
            &format!("addresses: [\"{address}\"]"),
        )
        .replace("addressType: IPv4", &format!("addressType: {family}"))
}

/// Waits until mallory's route reports the error of an endpoint, and alice's does not.
async fn refused(site: &Site, endpoint: &str, why: &str) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let (_, told) = site.ask(&["status"])?;
        // The conditions are between the first line and the numbers of each kind.
        let conditions = told.split("\n\n").nth(1).unwrap_or_default();
        let (hers, others): (Vec<&str>, Vec<&str>) = conditions
            .lines()
            .partition(|line| line.contains("mallory/"));
        ensure!(
            !others.iter().any(|line| line.contains("mallory")),
            "it is told to others: {others:#?}"
        );
        let wanted = format!("{endpoint} ({why}");
        if hers
            .iter()
            .any(|line| line.contains("EndpointNotPermitted") && line.contains(&wanted))
        {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{wanted} is not told: {hers:#?}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_responder_of_the_program_is_no_backend() -> Result<()> {
    let port = free_port()?;
    for bound in ["127.0.0.1", "0.0.0.0"] {
        let site = Site::start(&["--challenges", &format!("{bound}:{port}")]).await?;
        site.save("mallory.yaml", &route("mallory", "web", HOST, FORWARD))?;
        site.served_by(HOST, "mallory").await?;
        for (address, endpoint) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::ffff:127.0.0.1", "[::ffff:127.0.0.1]"),
        ] {
            site.save("mallory-service.yaml", &listing(address, port))?;
            refused(
                &site,
                &format!("{endpoint}:{port}"),
                "where Gatewright listens itself",
            )
            .await?;
            site.answered_with(&site.plain(HOST), 503).await?;
        }
        site.save(
            "mallory-service.yaml",
            &service("mallory", site.mallory.address()),
        )?;
        site.served_by(HOST, "mallory").await?;
        site.alice_is_unharmed(1).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn envoys_own_listeners_are_no_backends() -> Result<()> {
    let site = Site::start(&[]).await?;
    site.save("mallory.yaml", &route("mallory", "web", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    for (step, port) in [site.http, site.https].into_iter().enumerate() {
        for (address, endpoint) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::ffff:127.0.0.1", "[::ffff:127.0.0.1]"),
        ] {
            site.save("mallory-service.yaml", &listing(address, port))?;
            refused(
                &site,
                &format!("{endpoint}:{port}"),
                "where Envoy listens itself",
            )
            .await?;
            site.answered_with(&site.plain(HOST), 503).await?;
        }
        site.alice_is_unharmed(step).await?;
    }
    let port = site.https;
    let site = site.restart()?;
    site.served_by("alice.example.org", "alice").await?;
    refused(
        &site,
        &format!("[::ffff:127.0.0.1]:{port}"),
        "where Envoy listens itself",
    )
    .await?;
    site.answered_with(&site.plain(HOST), 503).await?;
    // The address cannot be a backend's while it is a listener's.
    site.save(
        "mallory-service.yaml",
        &service("mallory", site.mallory.address()),
    )?;
    site.served_by(HOST, "mallory").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn metadata_services_and_other_special_addresses_are_no_backends() -> Result<()> {
    let site = Site::start(&[
        "--set",
        "backends.deniedNetworks=[127.0.0.2/32, '2001:db8::/32']",
    ])
    .await?;
    site.save("mallory.yaml", &route("mallory", "web", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    for (address, endpoint, why) in [
        ("169.254.169.254", "169.254.169.254:80", "link-local"),
        ("0.0.0.0", "0.0.0.0:80", "unspecified"),
        ("224.0.0.1", "224.0.0.1:80", "multicast"),
        ("fd00:ec2::254", "[fd00:ec2::254]:80", "a metadata service"),
        ("fe80::1", "[fe80::1]:80", "link-local"),
        (
            "64:ff9b::a9fe:a9fe",
            "[64:ff9b::a9fe:a9fe]:80",
            "link-local",
        ),
        ("127.0.0.2", "127.0.0.2:80", "in 127.0.0.2/32"),
        ("2001:db8::1", "[2001:db8::1]:80", "in 2001:db8::/32"),
    ] {
        site.save("mallory-service.yaml", &listing(address, 80))?;
        refused(&site, endpoint, why)
            .await
            .with_context(|| address.to_owned())?;
        site.answered_with(&site.plain(HOST), 503).await?;
    }
    site.alice_is_unharmed(0).await?;
    // The other endpoints are used when one is left out.
    let both = service("mallory", site.mallory.address()).replace(
        "endpoints: [",
        "endpoints: [{addresses: [169.254.169.254]}, ",
    );
    site.save("mallory-service.yaml", &both)?;
    site.served_by(HOST, "mallory").await?;
    refused(
        &site,
        &format!("169.254.169.254:{}", site.mallory.address().port()),
        "link-local",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_loop_through_a_forwarder_ends_after_one_pass() -> Result<()> {
    let site = Site::start(&[]).await?;
    let forwarder = Forwarder::to(SocketAddr::from((Ipv4Addr::LOCALHOST, site.http))).await?;
    site.save("mallory.yaml", &route("mallory", "web", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    site.save(
        "mallory-service.yaml",
        &service("mallory", forwarder.address),
    )?;
    site.answered_with(&site.plain(HOST), 502).await?;
    let many = 20;
    let before = forwarder.connections();
    for _ in 0..many {
        let answer = site.plain(HOST).send().await?;
        ensure!(answer.status == 502, "answered {}", answer.status);
    }
    let made = forwarder.connections() - before;
    ensure!(made <= 3 * many, "{made} connections for {many} requests");
    site.alice_is_unharmed(0).await?;

    // A single pass through the proxy is legitimate.
    let proxied = "[{filters: [{type: URLRewrite, urlRewrite: {hostname: alice.example.org}}], \
                   backendRefs: [{name: web, port: 80}]}]";
    site.save("mallory.yaml", &route("mallory", "web", HOST, proxied))?;
    let until = Instant::now() + LIMIT;
    while !named(&site.plain(HOST))
        .await
        .is_ok_and(|name| name == "alice")
    {
        ensure!(
            Instant::now() < until,
            "{:?}",
            named(&site.plain(HOST)).await
        );
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
