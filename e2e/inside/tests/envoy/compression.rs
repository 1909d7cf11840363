//! Compression by TrafficPolicies on a real Envoy: what is compressed, with which algorithm, and
//! what stays as it is.

use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use e2e::probe::Answer;
use e2e::websocket::over_http2;
use serde_json::{Value, json};
use tokio::process::Command;

use super::body_site::{BodySite, HOST, OTHER, SOCKET, forward, policy};

/// A value for a header that makes the answer of a backend longer than `minBytes`.
const FILLING: usize = 3000;

/// A rule for a path whose answers have this header.
fn with_header(path: &str, (name, value): (&str, &str)) -> Value {
    let set = json!({"set": [{"name": name, "value": value}]});
    json!({"matches": [{"path": {"value": path}}],
        "filters": [{"type": "ResponseHeaderModifier", "responseHeaderModifier": set}],
        "backendRefs": [{"name": "web", "port": 80}]})
}

async fn start(compression: Value) -> Result<BodySite> {
    let rules = json!([
        with_header("/strong", ("etag", "\"one\"")),
        with_header("/weak", ("etag", "W/\"one\"")),
        with_header("/kept", ("cache-control", "no-transform")),
        with_header("/encoded", ("content-encoding", "gzip")),
        with_header("/image", ("content-type", "image/png")),
        with_header("/vary", ("vary", "Origin")),
        forward(),
    ]);
    let policies = vec![
        policy("app", "compression", compression),
        policy("ws", "compression", json!({})),
    ];
    BodySite::start(rules, policies).await
}

/// The answers to a client that accepts these encodings.
async fn answers(site: &BodySite, host: &str, path: &str, accepted: &str) -> Result<Vec<Answer>> {
    let mut answers = Vec::new();
    for probe in site.each(host, path) {
        let probe = probe.header("x-filling", &"x".repeat(FILLING));
        let probe = probe.header("accept-encoding", accepted);
        answers.push(site.send(&probe).await?);
    }
    Ok(answers)
}

/// Expects an encoding of a path, or none, and whether caches are told that there are several.
async fn expect(
    site: &BodySite,
    path: &str,
    accepted: &str,
    encoding: Option<&str>,
    varies: bool,
) -> Result<()> {
    for answer in answers(site, HOST, path, accepted).await? {
        let at = format!("{path} for {accepted}: {:?}", answer.headers);
        ensure!(answer.header("content-encoding") == encoding, "{at}");
        let vary = answer.header("vary").unwrap_or_default();
        ensure!(vary.contains("Accept-Encoding") == varies, "{at}");
    }
    Ok(())
}

/// The body of an answer as curl decodes it, and the bytes that came over the network.
pub(super) async fn curled(address: SocketAddr, options: &[&str]) -> Result<(String, usize)> {
    let scheme = if options.contains(&"--insecure") {
        "https"
    } else {
        "http"
    };
    let body = tempfile::NamedTempFile::new()?;
    let port = address.port();
    let filling = format!("x-filling: {}", "x".repeat(FILLING));
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--header", &filling])
        .args(["--resolve", &format!("{HOST}:{port}:127.0.0.1")])
        .args(["--write-out", "%{size_download}", "--output"])
        .arg(body.path())
        .args(options)
        .arg(format!("{scheme}://{HOST}:{port}/page"))
        .stdin(Stdio::null())
        .output()
        .await
        .context("curl")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{told}");
    let bytes = String::from_utf8(output.stdout)?.parse()?;
    Ok((std::fs::read_to_string(body.path())?, bytes))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn curl_decodes_what_was_compressed() -> Result<()> {
    let site = start(json!({})).await?;
    let cases: [(SocketAddr, &[&str]); 4] = [
        (site.http, &["--compressed"]),
        (site.https, &["--compressed", "--insecure", "--http1.1"]),
        (site.https, &["--compressed", "--insecure", "--http2"]),
        (
            site.https,
            &[
                "--header",
                "accept-encoding: gzip",
                "--compressed",
                "--insecure",
            ],
        ),
    ];
    for (address, options) in cases {
        let (body, bytes) = curled(address, options).await?;
        let echoed: Value = serde_json::from_str(&body).with_context(|| body.clone())?;
        ensure!(echoed["name"] == "web", "{options:?}: {body}");
        ensure!(body.len() > FILLING, "{options:?}: {} bytes", body.len());
        ensure!(
            bytes < 1000,
            "{options:?}: {bytes} bytes for {}",
            body.len()
        );
    }
    let (body, bytes) = curled(site.http, &[]).await?;
    ensure!(body.len() == bytes, "curl did not ask for it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn clients_get_what_they_accept_and_responses_keep_their_meaning() -> Result<()> {
    let site = start(json!({})).await?;
    expect(&site, "/", "gzip, br", Some("br"), true).await?;
    expect(&site, "/", "br;q=0.5, gzip", Some("gzip"), true).await?;
    expect(&site, "/", "gzip", Some("gzip"), true).await?;
    expect(&site, "/", "zstd, identity", None, true).await?;
    expect(&site, "/", "gzip;q=0", None, true).await?;
    // What the backend has compressed, a part of a body, and what nobody may change.
    expect(&site, "/encoded", "gzip, br", Some("gzip"), false).await?;
    expect(&site, "/status/206", "gzip, br", None, false).await?;
    expect(&site, "/kept", "gzip, br", None, false).await?;
    // An image is compressed by itself.
    expect(&site, "/image", "gzip, br", None, false).await?;
    expect(&site, "/status/503", "gzip", Some("gzip"), true).await?;
    for answer in answers(&site, HOST, "/encoded", "gzip").await? {
        ensure!(answer.echoed("name")? == "web", "compressed twice");
    }
    for path in ["/strong", "/weak"] {
        for answer in answers(&site, HOST, path, "gzip").await? {
            ensure!(answer.header("etag") == Some("W/\"one\""), "{answer:?}");
        }
    }
    for answer in answers(&site, HOST, "/strong", "identity").await? {
        ensure!(answer.header("etag") == Some("\"one\""), "{answer:?}");
    }
    for answer in answers(&site, HOST, "/vary", "gzip").await? {
        let all: Vec<_> = answer.headers.get_all("vary").iter().collect();
        ensure!(
            format!("{all:?}").contains("Origin") && format!("{all:?}").contains("Accept-Encoding"),
            "{all:?}"
        );
    }
    // The host without a policy.
    for answer in answers(&site, OTHER, "/", "gzip, br").await? {
        ensure!(
            answer.header("content-encoding").is_none() && answer.header("vary").is_none(),
            "{answer:?}"
        );
    }
    // Backends are asked as the client asks.
    for answer in answers(&site, HOST, "/kept", "br;q=0.1").await? {
        let asked = answer.echoed("headers")?["accept-encoding"].clone();
        ensure!(asked == json!(["br;q=0.1"]), "{asked}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_policy_says_which_types_sizes_and_algorithms() -> Result<()> {
    let compression = json!({"types": ["image/png"], "minBytes": 100_000, "algorithms": ["Gzip"]});
    let site = start(compression).await?;
    expect(&site, "/", "gzip, br", None, false).await?;
    expect(&site, "/image", "gzip, br", None, false).await?;
    let smaller = json!({"types": ["Image/PNG"], "minBytes": 64, "algorithms": ["Gzip", "Brotli"]});
    site.world
        .settle(vec![policy("app", "compression", smaller)])
        .await?;
    expect(&site, "/", "gzip, br", None, false).await?;
    expect(&site, "/image", "br, gzip", Some("gzip"), true).await?;
    expect(&site, "/image", "br", Some("br"), true).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_websocket_is_not_compressed() -> Result<()> {
    let site = start(json!({})).await?;
    for (address, tls) in [(site.http, false), (site.https, true)] {
        let opened = over_http2(address, SOCKET, tls, &[("accept-encoding", "gzip, br")]).await?;
        ensure!(opened.status == 200, "{opened:?}");
        let message = opened.message.unwrap_or_default();
        ensure!(message.starts_with("hello HTTP/1.1 "), "{message}");
    }
    Ok(())
}
