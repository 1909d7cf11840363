//! HTTP/3 on a real Envoy, by aioquic.

use std::cell::Cell;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::echo::Echo;
use e2e::hex::hex;
use e2e::probe::Probe;
use e2e::quic::Quic;
use e2e::tenants::until;
use e2e::webdriver::DrivenBrowser;
use e2e_inside::world::{World, class, edge_route_to_web, edge_with, free_port, object, service};
use gatewright_core::translate::Change;
use rcgen::{CertifiedKey, KeyPair, PublicKeyData};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tokio::net::UdpSocket;

use super::hot_restart;

/// A certificate.
struct Issued(CertifiedKey<KeyPair>);

impl Issued {
    fn of(names: &[&str]) -> Result<Self> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        Ok(Self(rcgen::generate_simple_self_signed(names)?))
    }

    /// SHA-256, in hex.
    fn digest(&self) -> String {
        hex(digest(&SHA256, self.0.cert.der()))
    }

    /// SHA-256 of the key, in Base64.
    fn key(&self) -> String {
        STANDARD.encode(digest(
            &SHA256,
            &self.0.signing_key.subject_public_key_info(),
        ))
    }

    /// The Secret of a host.
    fn secret(&self, host: &str) -> Change {
        object(
            json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"namespace": "default", "name": host},
            "stringData": {"tls.crt": self.0.cert.pem(), "tls.key": self.0.signing_key.serialize_pem()}}),
        )
    }
}

/// A Gateway with HTTPS listeners before a backend that has routes for all hosts.
struct Site {
    world: World,
    _echo: Echo,
    port: u16,
}

impl Site {
    /// Starts with hosts, of which `http3` have the option, and their certificates.
    async fn start(hosts: &[(&str, &Issued)], http3: &[&str]) -> Result<Self> {
        Self::start_edited(hosts, http3, |_| ()).await
    }

    /// The same with an Envoy whose bootstrap is edited.
    async fn start_edited(
        hosts: &[(&str, &Issued)],
        http3: &[&str],
        edit: fn(&mut Value),
    ) -> Result<Self> {
        let port = free_port()?;
        let echo = Echo::start("web").await?;
        let names: Vec<&str> = hosts.iter().map(|(host, _)| *host).collect();
        let mut changes = vec![class(), listeners(port, &names, http3)];
        changes.extend(service("web", echo.address()));
        for (host, issued) in hosts {
            changes.extend([edge_route_to_web(host), issued.secret(host)]);
        }
        Ok(Self {
            world: World::start_edited(changes, edit).await?,
            _echo: echo,
            port,
        })
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Connects by QUIC, which has to succeed.
    async fn connect(&self, sni: &str) -> Result<Quic> {
        let connected = Quic::connect(self.address(), sni).await?;
        connected.with_context(|| format!("{sni} is refused\n{}", self.world.envoy.log()))
    }

    async fn is_refused(&self, sni: &str) -> Result<bool> {
        Ok(Quic::connect(self.address(), sni).await?.is_none())
    }
}

fn listeners(port: u16, hosts: &[&str], http3: &[&str]) -> Change {
    edge_with("gatewright.io/http3", port, hosts, http3)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and aioquic"]
async fn hosts_with_the_option_are_served_by_http3_and_others_are_not() -> Result<()> {
    let issued = [
        Issued::of(&["a.example.org"])?,
        Issued::of(&["b.example.org"])?,
        Issued::of(&["c.example.org"])?,
    ];
    let hosts = [
        ("a.example.org", &issued[0]),
        ("b.example.org", &issued[1]),
        ("c.example.org", &issued[2]),
    ];
    let site = Site::start(&hosts, &["a.example.org", "b.example.org"]).await?;
    let told = format!("h3=\":{}\"; ma=86400", site.port);

    let mut a = site.connect("a.example.org").await?;
    ensure!(a.certificate == issued[0].digest(), "another certificate");
    let answer = a.get("a.example.org").await?;
    ensure!(answer.status == 200, "{answer:?}");
    ensure!(answer.body.contains("web"), "no backend's: {answer:?}");
    ensure!(answer.headers.get("alt-svc") == Some(&told), "{answer:?}");
    ensure!(
        answer.early_data.iter().all(|most| *most == 0),
        "early data: {answer:?}"
    );
    let with_port = format!("a.example.org:{}", site.port);
    ensure!(a.get(&with_port).await?.status == 200, "{with_port}");
    for (host, expected) in [
        ("b.example.org", 421),
        ("c.example.org", 421),
        ("unknown.example.org", 404),
        ("a.example.org:x", 400),
        ("a.example.org:99999999", 400),
    ] {
        let status = a.get(host).await?.status;
        ensure!(status == expected, "{host}: {status}");
    }
    let b = site.connect("b.example.org").await?;
    ensure!(b.certificate == issued[1].digest(), "another certificate");
    for sni in ["c.example.org", "unknown.example.org"] {
        ensure!(site.is_refused(sni).await?, "{sni} is served");
    }

    for (host, header) in [
        ("a.example.org", Some(told.as_str())),
        ("b.example.org", Some(told.as_str())),
        ("c.example.org", None),
    ] {
        let answer = Probe::https(site.address(), host).send().await?;
        ensure!(answer.status == 200, "{host}: {}", answer.status);
        ensure!(answer.header("alt-svc") == header, "{host}: {answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and aioquic"]
async fn a_certificate_is_served_for_its_own_host_whatever_names_it_has() -> Result<()> {
    let greedy = Issued::of(&["a.example.org", "b.example.org", "*.example.org"])?;
    let own = Issued::of(&["b.example.org"])?;
    let hosts = [("a.example.org", &greedy), ("b.example.org", &own)];
    let site = Site::start(&hosts, &["a.example.org", "b.example.org"]).await?;
    let b = site.connect("b.example.org").await?;
    ensure!(b.certificate == own.digest(), "another host's certificate");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and aioquic"]
async fn a_renewed_certificate_is_served_and_connections_stay() -> Result<()> {
    let first = Issued::of(&["a.example.org"])?;
    let second = Issued::of(&["a.example.org"])?;
    let site = Site::start(&[("a.example.org", &first)], &["a.example.org"]).await?;
    let mut before = site.connect("a.example.org").await?;
    ensure!(before.get("a.example.org").await?.status == 200);
    site.world
        .settle(vec![second.secret("a.example.org")])
        .await?;
    let mut after = site.connect("a.example.org").await?;
    ensure!(after.certificate == second.digest(), "the old certificate");
    ensure!(after.get("a.example.org").await?.status == 200);
    ensure!(before.get("a.example.org").await?.status == 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and aioquic"]
async fn hosts_come_and_go_without_the_connections_of_others() -> Result<()> {
    let issued = [
        Issued::of(&["a.example.org"])?,
        Issued::of(&["b.example.org"])?,
    ];
    let site = Site::start(&[("a.example.org", &issued[0])], &["a.example.org"]).await?;
    let mut a = site.connect("a.example.org").await?;
    ensure!(a.get("a.example.org").await?.status == 200);
    let names = ["a.example.org", "b.example.org"];
    site.world
        .settle(vec![
            listeners(site.port, &names, &names),
            edge_route_to_web("b.example.org"),
            issued[1].secret("b.example.org"),
        ])
        .await?;
    let mut b = site.connect("b.example.org").await?;
    ensure!(b.get("b.example.org").await?.status == 200);
    ensure!(a.get("a.example.org").await?.status == 200, "added");
    site.world
        .settle(vec![listeners(site.port, &names, &names[..1])])
        .await?;
    ensure!(site.is_refused("b.example.org").await?, "b is served");
    ensure!(a.get("a.example.org").await?.status == 200, "removed");

    // Without any host the port is closed, and with one it is there again.
    site.world
        .settle(vec![listeners(site.port, &names, &[])])
        .await?;
    let answer = Probe::https(site.address(), "a.example.org").send().await?;
    ensure!(answer.header("alt-svc").is_none(), "{answer:?}");
    ensure!(site.is_refused("a.example.org").await?, "a is served");
    site.world
        .settle(vec![listeners(site.port, &names, &names[..1])])
        .await?;
    let mut a = site.connect("a.example.org").await?;
    ensure!(a.get("a.example.org").await?.status == 200);
    Ok(())
}

/// Passes the first datagram of a client on to a port of UDP and nothing after it, as from an
/// address that is not the client's. Counts the bytes there and back.
async fn forge(
    client: UdpSocket,
    server: SocketAddr,
    (sent, returned): (&Cell<usize>, &Cell<usize>),
) -> Result<Infallible> {
    let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    own.connect(server).await?;
    let mut first = [0; 2048];
    let (size, _) = client.recv_from(&mut first).await?;
    own.send(&first[..size]).await?;
    sent.set(size);
    let mut answer = [0; 65_536];
    loop {
        returned.set(returned.get() + own.recv(&mut answer).await?);
    }
}

/// RFC 9000, section 8.1: three times what came from an address that is not validated. The
/// certificate is larger than that, and Envoy repeats what nobody acknowledges.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and aioquic"]
async fn an_address_that_is_forged_gets_three_times_what_was_sent_at_most() -> Result<()> {
    let host = "a.example.org";
    let names: Vec<String> = (0..200)
        .map(|number| format!("name-{number}.example.org"))
        .collect();
    let names: Vec<&str> = [host]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    let issued = Issued::of(&names)?;
    let site = Site::start(&[(host, &issued)], &[host]).await?;
    site.connect(host).await?;
    let relay = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = relay.local_addr()?;
    let (sent, returned) = (Cell::new(0), Cell::new(0));
    let connected = tokio::select! {
        ended = forge(relay, site.address(), (&sent, &returned)) => match ended? {},
        connected = Quic::connect(address, host) => connected?,
    };
    ensure!(connected.is_none(), "nobody answered the server");
    let (sent, returned) = (sent.get(), returned.get());
    ensure!(sent >= 1200, "{sent} bytes were sent");
    ensure!(
        returned > 2 * sent && returned <= 3 * sent,
        "{sent} bytes were answered with {returned}"
    );
    Ok(())
}

fn with_a_full_heap(bootstrap: &mut Value) {
    bootstrap["overload_manager"]["resource_monitors"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .filter_map(|monitor| monitor.pointer_mut("/typed_config/max_heap_size_bytes"))
        .for_each(|most| *most = json!("1048576"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and aioquic"]
async fn an_envoy_with_a_full_heap_accepts_no_connections() -> Result<()> {
    let host = "a.example.org";
    let issued = Issued::of(&[host])?;
    let site = Site::start_edited(&[(host, &issued)], &[host], with_a_full_heap).await?;
    until("connections are refused", async || {
        site.is_refused(host).await
    })
    .await
}

#[tokio::test]
#[ignore = "needs Envoy and Chromium"]
async fn a_browser_opens_a_page_by_http3() -> Result<()> {
    let host = "a.example.org";
    let issued = Issued::of(&[host])?;
    let site = Site::start(&[(host, &issued)], &[host]).await?;
    let browser = DrivenBrowser::start_with_http3(host, site.address(), &issued.key()).await?;
    browser
        .open(&format!("https://{host}:{}/", site.port))
        .await?;
    let protocol = browser.protocol().await?;
    ensure!(protocol == "h3", "{protocol}");
    ensure!(browser.text().await?.contains("web"), "no backend's page");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy and aioquic"]
async fn http3_is_served_through_a_hot_restart() -> Result<()> {
    let site = hot_restart::Site::new().await?;
    site.add_listener_with("gatewright.io/http3")?;
    let (mut old, pid, load) = site.serving().await?;
    let connected = Quic::connect(site.https, "web.example.org").await?;
    let mut before = connected.context("refused before")?;
    ensure!(before.get("web.example.org").await?.status == 200);

    let admin = site.state.path().join("admin-of-envoy.sock");
    let admin = admin.display().to_string();
    let mut new = site.start(&["--take-over", "--envoy-admin", &admin])?;
    new.line("serves in place of").await?;
    let connected = Quic::connect(site.https, "web.example.org").await?;
    let mut after = connected.context("refused while the old Envoy drains")?;
    ensure!(after.get("web.example.org").await?.status == 200);
    ensure!(site.one().await? != pid, "the Envoy before is still there");
    ensure!(after.get("web.example.org").await?.status == 200);
    load.failures()?;
    drop(load);
    old.end().await?;
    site.end(new).await
}
