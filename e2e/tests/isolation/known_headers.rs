//! Headers and limits of bandwidth that mallory asks for: alice's requests and responses have none,
//! and bodies that wait take an Envoy no memory without a bound.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::probe::Answer;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::access::targets;
use crate::compression::of_alice;
use crate::site::{FORWARD, Site, route};

const HOST: &str = "mallory.example.org";
const MIB: u64 = 1 << 20;
/// Mallory's connections whose bodies wait, and what each sends at most.
const UPLOADS: usize = 64;
const UPLOAD: usize = 16 << 20;
/// What an Envoy may keep of each, beside what it grows by itself.
const KEPT: u64 = MIB;
const NOISE: u64 = 16 * MIB;

fn policy(settings: &str) -> String {
    format!(
        "apiVersion: gatewright.io/v1alpha1\nkind: TrafficPolicy\n\
         metadata: {{name: own, namespace: mallory}}\n\
         spec: {{targetRefs: [{}], {settings}}}\n",
        targets()
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_stranger_sets_headers_of_her_own_hosts_alone() -> Result<()> {
    let site = Site::start(&[]).await?;
    site.save("mallory-host.yaml", &route("mallory", "own", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    let before = of_alice(&site).await?;
    ensure!(!before.is_empty(), "no scope of alice's host");
    site.save(
        "mallory.yaml",
        &policy(
            "headers: {request: [{name: X-Real-IP, value: {type: ClientAddress}}], \
             response: [{name: x-hers, value: {type: Text, text: hers}}]}",
        ),
    )?;
    let is_hers = |answer: &Answer| answer.header("x-hers") == Some("hers");
    site.answered_so(&site.plain(HOST), "with the header", is_hers)
        .await?;
    for probe in [
        site.plain("alice.example.org"),
        site.tls("alice.example.org"),
    ] {
        let answer = probe.header("x-real-ip", "192.0.2.1").send().await?;
        ensure!(answer.status == 200 && !is_hers(&answer), "{answer:?}");
        let headers = answer.echoed("headers")?;
        ensure!(headers["x-real-ip"].is_null(), "{headers}");
    }
    ensure!(of_alice(&site).await? == before, "alice's host changed");
    site.alice_is_unharmed(1).await
}

/// Sends a body until nothing is taken any more. Returns the connection, and what was taken.
async fn filled(site: &Site) -> Result<(TcpStream, usize)> {
    let mut stream = TcpStream::connect(("127.0.0.1", site.http)).await?;
    let head = format!("POST / HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: {UPLOAD}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let part = vec![b'x'; 64 << 10];
    let mut taken = 0;
    while taken < UPLOAD {
        match timeout(Duration::from_secs(2), stream.write(&part)).await {
            Ok(bytes) => taken += bytes?,
            Err(_) => break,
        }
    }
    Ok((stream, taken))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn bodies_that_wait_for_bandwidth_are_not_kept() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    site.save("mallory-host.yaml", &route("mallory", "own", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    site.save(
        "mallory.yaml",
        &policy("bandwidthLimit: {requestKibPerSecond: 1}, headers: {response: [{name: x-hers, value: {type: Host}}]}"),
    )?;
    let is_limited = |answer: &Answer| answer.header("x-hers").is_some();
    site.answered_so(&site.plain(HOST), "limited", is_limited)
        .await?;
    let before = site.envoy_resident()?;
    let uploads = (0..UPLOADS).map(|_| filled(&site));
    let uploads = futures::future::try_join_all(uploads).await?;
    let least = uploads.iter().map(|(_, taken)| *taken).min();
    ensure!(least < Some(UPLOAD), "an upload was taken at once");
    let grown = site.envoy_resident()?.saturating_sub(before);
    ensure!(
        grown < NOISE + KEPT * UPLOADS as u64,
        "Envoy grew by {} MiB",
        grown / MIB
    );
    // Alice's bodies pass meanwhile.
    for probe in [
        site.plain("alice.example.org"),
        site.tls("alice.example.org"),
    ] {
        let answer = probe
            .method(hyper::Method::POST)
            .body(vec![b'x'; 100_000])
            .send()
            .await?;
        ensure!(answer.status == 200, "{answer:?}");
    }
    drop(uploads);
    site.alice_is_unharmed(1).await
}
