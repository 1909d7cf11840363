//! Compression that mallory asks for: nothing of alice's is compressed, and what an Envoy has for
//! alice's host stays the same to the byte.

use anyhow::{Context, Result, ensure};
use e2e::probe::Answer;
use serde_json::Value;

use crate::access::targets;
use crate::site::{FORWARD, Site, ask_envoy, route};

const HOST: &str = "mallory.example.org";

/// What an Envoy has for alice's host, by its scopes.
pub(crate) async fn of_alice(site: &Site) -> Result<Vec<Value>> {
    let dump = ask_envoy(
        site.state.path(),
        "/config_dump?resource=dynamic_scoped_route_configs",
    )
    .await?;
    let dump: Value = serde_json::from_str(&unchunked(&dump)?)?;
    let all = dump["configs"].as_array().into_iter().flatten();
    let scopes = all.flat_map(|one| one["scoped_route_configs"].as_array().into_iter().flatten());
    Ok(scopes
        .filter(|scope| scope.to_string().contains("alice.example.org"))
        .cloned()
        .collect())
}

/// The body of an answer in chunks (RFC 9112, 7.1).
fn unchunked(answer: &str) -> Result<String> {
    let (_, mut rest) = answer.split_once("\r\n\r\n").context("no body")?;
    let mut body = String::new();
    loop {
        let (size, chunks) = rest.split_once("\r\n").context("no chunk")?;
        let size = usize::from_str_radix(size, 16).context("the size of a chunk")?;
        if size == 0 {
            return Ok(body);
        }
        body += chunks.get(..size).context("a cut chunk")?;
        rest = chunks.get(size + 2..).context("a cut chunk")?;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_stranger_compresses_her_own_responses_alone() -> Result<()> {
    let site = Site::start(&[]).await?;
    site.save("mallory-host.yaml", &route("mallory", "own", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    let before = of_alice(&site).await?;
    ensure!(!before.is_empty(), "no scope of alice's host");
    site.save(
        "mallory.yaml",
        &format!(
            "apiVersion: gatewright.io/v1alpha1\nkind: TrafficPolicy\n\
             metadata: {{name: small, namespace: mallory}}\n\
             spec: {{targetRefs: [{}], compression: {{minBytes: 64}}}}\n",
            targets()
        ),
    )?;
    let asked = site.plain(HOST).header("accept-encoding", "gzip");
    let is_compressed = |answer: &Answer| answer.header("content-encoding") == Some("gzip");
    site.answered_so(&asked, "compressed", is_compressed)
        .await?;
    for probe in [
        site.plain("alice.example.org"),
        site.tls("alice.example.org"),
    ] {
        let answer = probe.header("accept-encoding", "gzip, br").send().await?;
        ensure!(answer.status == 200, "{answer:?}");
        ensure!(
            answer.header("content-encoding").is_none() && answer.header("vary").is_none(),
            "{answer:?}"
        );
    }
    ensure!(of_alice(&site).await? == before, "alice's host changed");
    site.alice_is_unharmed(1).await
}
