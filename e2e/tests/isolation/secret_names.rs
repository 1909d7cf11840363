//! A Gateway with a hostname that another namespace serves elsewhere does not affect the other's
//! listener: the certificates of one hostname have one name in Envoy, which stays with its first
//! owner.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::port::free_port;
use e2e::probe::Probe;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep};

use super::route_names::until_answered;
use super::site::{LIMIT, Site};

const HOST: &str = "app.alice.example";

/// A Gateway with addresses of its own that serves the host over TLS.
fn gateway(namespace: &str, port: u16) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: own, namespace: {namespace}}}\nspec:\n  \
         gatewayClassName: ours\n  listeners: [{{name: https, protocol: HTTPS, port: {port}, hostname: {HOST}, \
         tls: {{options: {{gatewright.io/issuer: internal-ca}}}}}}]\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: own, namespace: {namespace}}}\nspec:\n  \
         parentRefs: [{{name: own}}]\n  rules: [{{backendRefs: [{{name: web, port: 80}}]}}]\n---\n"
    )
}

/// Returns a listener of the site's Envoy by its port; null if there is none.
async fn listener(site: &Site, port: u16) -> Result<Value> {
    let mut admin = UnixStream::connect(site.state.path().join("envoy-admin.sock")).await?;
    let question = "GET /config_dump?resource=dynamic_listeners HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n";
    admin.write_all(question.as_bytes()).await?;
    let mut answer = Vec::new();
    admin.read_to_end(&mut answer).await?;
    let end = answer
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .context("an answer has headers")?;
    let mut rest = &answer[end + 4..];
    let mut body = Vec::new();
    // A chunked body (RFC 9112, 7.1).
    while let Some(at) = rest.windows(2).position(|bytes| bytes == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..at])?, 16)?;
        body.extend(&rest[at + 2..at + 2 + size]);
        rest = &rest[at + 2 + size + 2..];
    }
    let dump: Value = serde_json::from_slice(&body)?;
    let listeners = dump["configs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| &one["active_state"]["listener"]);
    let mut found = listeners.filter(|one| one["address"]["socket_address"]["port_value"] == port);
    Ok(found.next().cloned().unwrap_or_default())
}

/// Waits until a port accepts connections, or refuses them.
async fn until_open(port: u16, open: bool) -> Result<()> {
    let until = Instant::now() + LIMIT;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .is_ok()
        != open
    {
        ensure!(
            Instant::now() < until,
            "port {port} is not {}",
            if open { "open" } else { "closed" }
        );
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_gateway_with_a_neighbours_hostname_changes_nothing_at_the_neighbours_listener()
-> Result<()> {
    let site = Site::start(&[]).await?;
    let alices = free_port()?;
    let others = free_port()?;
    let probe = Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, alices)), HOST);
    site.save("alice-own.yaml", &gateway("alice", alices))?;
    until_answered(&site, &probe, "alice").await?;
    // Its name sorts before hers in every order.
    let before = listener(&site, alices).await?;
    site.save("aaa-own.yaml", &gateway("aaa", others))?;
    let until = Instant::now() + LIMIT;
    let theirs = Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, others)), HOST);
    // It has no backend.
    while !theirs.send().await.is_ok_and(|answer| answer.status == 500) {
        ensure!(
            Instant::now() < until,
            "it is not served: {:?}\n{}",
            theirs.send().await.map(|a| a.status),
            site.program.output()
        );
        sleep(Duration::from_millis(20)).await;
    }
    until_answered(&site, &probe, "alice").await?;
    ensure!(
        before.is_object() && listener(&site, alices).await? == before,
        "alice's listener was changed"
    );
    // The same after a restart: when the other is deleted, her listener is unchanged.
    let site = site.restart()?;
    until_answered(&site, &probe, "alice").await?;
    until_open(others, true).await?;
    ensure!(
        listener(&site, alices).await? == before,
        "alice's listener is another one after the restart"
    );
    site.remove("aaa-own.yaml")?;
    until_open(others, false).await?;
    until_answered(&site, &probe, "alice").await?;
    ensure!(
        listener(&site, alices).await? == before,
        "alice's listener was changed"
    );
    Ok(())
}
