//! Bodies that are collected and never end, of many clients, on a real Envoy: each takes what is
//! collected of it, and others are answered.

use anyhow::{Result, ensure};
use e2e::tenants::until;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::body_site::{BodySite, HOST, OTHER, forward, policy};

/// The bytes of a body that are collected: as many as by default.
const COLLECTED: u64 = 64 << 10;
const CLIENTS: u64 = 1000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn bodies_that_never_end_take_what_is_collected_of_them() -> Result<()> {
    let limit = json!({"maxBytes": COLLECTED, "buffer": "All"});
    let policies = vec![policy("app", "requestBody", limit)];
    let site = BodySite::start(json!([forward()]), policies).await?;
    let envoy = &site.world.envoy;
    for probe in site.each(OTHER, "/") {
        ensure!(site.send(&probe).await?.status == 200, "{probe:?}");
    }
    let before = envoy.resident()?;
    let length = usize::try_from(COLLECTED)? - 1;
    let mut request = format!(
        "POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n"
    )
    .into_bytes();
    request.extend(vec![b'x'; length]);
    let mut open = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(site.http).await?;
        stream.write_all(&request).await?;
        open.push(stream);
    }
    until("all bodies are collected", async || {
        Ok(envoy.resident()?.saturating_sub(before) >= CLIENTS * COLLECTED)
    })
    .await?;
    for probe in site.each(OTHER, "/") {
        ensure!(site.send(&probe).await?.status == 200, "{probe:?}");
    }
    let grown = envoy.resident()?.saturating_sub(before);
    ensure!(
        grown < 3 * CLIENTS * COLLECTED,
        "the Envoy grew by {} MiB",
        grown >> 20
    );
    drop(open);
    Ok(())
}
