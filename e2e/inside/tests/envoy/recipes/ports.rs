//! Listeners of recipes, and protocols other than requests and answers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::probe::{Probe, roots_of};
use e2e::websocket::over_http2;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout};

use super::site::{LIMIT, Site, answered_by};

pub(super) async fn websocket(site: &Site) -> Result<()> {
    let opened = over_http2(site.https_address(), "chat.example.org", true, &[]).await?;
    let message = opened.message.context("a message")?;
    ensure!(message.starts_with("hello HTTP/1.1 "), "{message}");
    Ok(())
}

pub(super) async fn tls_passthrough(site: &Site) -> Result<()> {
    // The certificate is that of the backend.
    let roots = roots_of(&site.backends.pem())?;
    let answer = site
        .https("vault.example.org")
        .roots(roots)
        .answered(200)
        .await?;
    let name = answer.echoed("sni")?;
    ensure!(name == "vault.example.org", "{name}");
    Ok(())
}

pub(super) async fn tcp_udp(site: &Site) -> Result<()> {
    answered_by(&Probe::http(site.dns(), "any"), "web").await?;
    let client = UdpSocket::bind("127.0.0.1:0").await?;
    client.connect(site.dns()).await?;
    let deadline = Instant::now() + LIMIT;
    let mut datagram = [0; 64];
    // Nobody repeats a datagram that is lost.
    let envoy = loop {
        client.send(b"question").await?;
        let received = site.datagrams.recv_from(&mut datagram);
        if let Ok(received) = timeout(Duration::from_secs(1), received).await {
            break received?.1;
        }
        ensure!(Instant::now() < deadline, "no datagram arrives");
    };
    ensure!(datagram.starts_with(b"question"), "{datagram:?}");
    site.datagrams.send_to(b"answer", envoy).await?;
    let received = timeout(LIMIT, client.recv(&mut datagram)).await;
    let length = received.context("no answer")??;
    ensure!(&datagram[..length] == b"answer", "{datagram:?}");
    Ok(())
}

pub(super) async fn client_certificates(site: &Site) -> Result<()> {
    let probe = site.partner("partners.example.org");
    ensure!(probe.send().await.is_err(), "nobody without a certificate");
    let (certificate, key) = site.partners.client()?;
    answered_by(&probe.client(certificate, key), "web").await?;
    Ok(())
}

pub(super) async fn team_listeners(site: &Site) -> Result<()> {
    answered_by(&site.https("red.example.net"), "next").await?;
    Ok(())
}
