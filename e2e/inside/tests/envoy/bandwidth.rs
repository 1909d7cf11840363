//! Limits of bandwidth on a real Envoy: how fast bodies pass, and that they stay what they are.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::probe::Probe;
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::body_site::{BodySite, HOST, OTHER, SOCKET, forward, policy};
use super::compression::curled;
use e2e::websocket::over_http2;

/// The limit, and a body that takes longer than a second by it: what passes at once is at most what
/// passes in a second.
const KIB_PER_SECOND: usize = 64;
const BODY: usize = 160 * 1024;
const LEAST: Duration = Duration::from_millis(1400);

async fn start(limit: Value) -> Result<BodySite> {
    let policies = ["app", "ws"].map(|route| policy(route, "bandwidthLimit", limit.clone()));
    BodySite::start(json!([forward()]), policies.to_vec()).await
}

/// Sends a body, which the backend sends back. Returns how long it took.
async fn echoed(site: &BodySite, probe: &Probe) -> Result<Duration> {
    let text = "0123456789abcdef".repeat(BODY / 16);
    let probe = probe.clone().method(Method::POST).body(text.clone());
    let begin = Instant::now();
    let answer = site.send(&probe).await?;
    let took = begin.elapsed();
    ensure!(answer.status == 200, "{answer:?}");
    ensure!(answer.echoed("body")? == text, "another body");
    Ok(took)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn bodies_pass_as_fast_as_the_limit_and_stay_what_they_are() -> Result<()> {
    for field in ["requestKibPerSecond", "responseKibPerSecond"] {
        let site = start(json!({field: KIB_PER_SECOND})).await?;
        let [others, ours] = [OTHER, HOST].map(|host| site.each(host, "/"));
        for (other, own) in others.iter().zip(&ours) {
            let limited = echoed(&site, own).await?;
            ensure!(limited >= LEAST, "{field}: it took {limited:?}");
            let free = echoed(&site, other).await?;
            ensure!(free < limited, "{field}: {free:?} without a limit");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn other_changes_to_bodies_are_made_all_the_same() -> Result<()> {
    let both = json!({"requestKibPerSecond": 1024, "responseKibPerSecond": 1});
    let site = start(both).await?;
    let buffered = json!({"maxBytes": 60_000, "buffer": "All"});
    site.world
        .settle(vec![
            policy("app", "compression", json!({"minBytes": 64})),
            policy("app", "requestBody", buffered),
        ])
        .await?;
    let ways: [(_, &[&str]); 3] = [
        (site.http, &["--compressed"]),
        (site.https, &["--compressed", "--insecure", "--http1.1"]),
        (site.https, &["--compressed", "--insecure", "--http2"]),
    ];
    for (address, options) in ways {
        let (body, bytes) = curled(address, options).await?;
        let echoed: Value = serde_json::from_str(&body)?;
        ensure!(echoed["name"] == "web", "{options:?}: {body}");
        ensure!(bytes < 1000, "{options:?}: {bytes} bytes, compressed");
    }
    for probe in site.each(HOST, "/") {
        let probe = probe.method(Method::POST);
        let small = probe.clone().body_of_unknown_length(vec![b'x'; 500]);
        let answer = site.send(&small).await?;
        ensure!(answer.echoed("body")? == "x".repeat(500), "{answer:?}");
        let large = probe.body_of_unknown_length(vec![b'x'; 100_000]);
        let answer = site.send(&large).await?;
        ensure!(answer.status == 413, "{answer:?}");
    }
    for (address, tls) in [(site.http, false), (site.https, true)] {
        let opened = over_http2(address, SOCKET, tls, &[]).await?;
        ensure!(opened.status == 200, "{opened:?}");
        let message = opened.message.unwrap_or_default();
        ensure!(message.starts_with("hello HTTP/1.1 "), "{message}");
    }
    Ok(())
}
