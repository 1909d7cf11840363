//! Backends whose answers have a status that no client asked for, `101` without an upgrade, or that
//! does not exist: an answer of another tenant on the same connection stays that tenant's.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::site::{FORWARD, LIMIT, Site, route, service};

const HEADS: [&str; 3] = [
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "HTTP/1.1 999 Unknown\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 000 Unknown\r\nContent-Length: 0\r\n\r\n",
];

/// Starts a backend that answers each request with this, and then poses as alice's.
async fn backend(head: &'static str) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while stream
                    .read(&mut request)
                    .await
                    .is_ok_and(|length| length > 0)
                {
                    let body = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nmallory";
                    // The client may have gone.
                    let _gone = stream.write_all(format!("{head}{body}").as_bytes()).await;
                }
            });
        }
    });
    Ok(address)
}

/// Sends a request for mallory's host, then one for alice's on the same connection, if it stays
/// open. Returns all that is answered.
async fn both(port: u16) -> Result<String> {
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: mallory.example.org\r\n\r\n")
        .await?;
    let mut first = vec![0; 4096];
    let length = client.read(&mut first).await?;
    first.truncate(length);
    // Envoy may have closed the connection.
    let second = b"GET / HTTP/1.1\r\nHost: alice.example.org\r\nConnection: close\r\n\r\n";
    let mut rest = Vec::new();
    if client.write_all(second).await.is_ok() {
        let _reset = timeout(Duration::from_secs(10), client.read_to_end(&mut rest)).await;
    }
    Ok(String::from_utf8_lossy(&[first, rest].concat()).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_answer_with_an_unasked_status_takes_no_answer_of_another_tenant() -> Result<()> {
    let site = Site::start(&[]).await?;
    site.save(
        "mallory.yaml",
        &route("mallory", "web", "mallory.example.org", FORWARD),
    )?;
    for head in HEADS {
        site.save(
            "mallory-service.yaml",
            &service("mallory", backend(head).await?),
        )?;
        let status: u16 = head.split(' ').nth(1).context("a status")?.parse()?;
        let status = status.to_string();
        let began = tokio::time::Instant::now();
        let answers = loop {
            let answers = both(site.http).await?;
            let first = answers.split_whitespace().nth(1).unwrap_or_default();
            if first == status || first == "502" {
                break answers;
            }
            ensure!(
                began.elapsed() < LIMIT,
                "{status}: the backend is not reached: {answers}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let after = answers
            .split_once("\r\n\r\n")
            .map_or("", |(_, after)| after);
        ensure!(
            !after.contains("mallory"),
            "{status}: mallory answers for alice: {answers}"
        );
        ensure!(
            after.is_empty() || after.contains("\"name\":\"alice\""),
            "{status}: {answers}"
        );
        site.served_by("alice.example.org", "alice").await?;
    }
    Ok(())
}
