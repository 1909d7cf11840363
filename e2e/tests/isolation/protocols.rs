//! Older versions of HTTP, and upgrades to other protocols (docs/edge.md).

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::edge::{say, say_to_the_end, status};
use crate::site::Site;

const HOST: &str = "alice.example.org";

/// The request as the backend received it, in an answer with status 200.
fn seen(answer: &str) -> Result<Value> {
    ensure!(status(answer) == Some(200), "{answer}");
    let start = answer.find('{').context("JSON")?;
    let end = answer.rfind('}').context("JSON")?;
    Ok(serde_json::from_str(&answer[start..=end])?)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn http_1_0_with_a_host_is_served() -> Result<()> {
    let site = Site::start(&[]).await?;
    let answer = say(
        site.http,
        &format!("GET /a HTTP/1.0\r\nHost: {HOST}\r\n\r\n"),
    )
    .await?;
    ensure!(
        answer.starts_with("HTTP/1.0 200") && answer.contains("connection: close"),
        "{answer}"
    );
    ensure!(
        seen(&answer)?["version"] == "HTTP/1.1",
        "backends see HTTP/1.1: {answer}"
    );
    let answer = say(
        site.http,
        &format!("POST /a HTTP/1.0\r\nHost: {HOST}\r\nContent-Length: 5\r\n\r\nhello"),
    )
    .await?;
    ensure!(seen(&answer)?["body"] == "hello", "{answer}");
    let answer = say(
        site.http,
        "GET /a HTTP/1.0\r\nHost: nobody.example.org\r\n\r\n",
    )
    .await?;
    ensure!(status(&answer) == Some(404), "another host: {answer}");
    for without in [
        "GET /a HTTP/1.0\r\n\r\n",
        "GET /a\r\n\r\n",
        "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    ] {
        let answer = say(site.http, without).await?;
        ensure!(
            status(&answer) == Some(400),
            "without a host {without:?}: {answer}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_framing_of_http_1_0_smuggles_no_request() -> Result<()> {
    let site = Site::start(&[]).await?;
    let keep = "Connection: keep-alive\r\n";
    let last = "GET /last HTTP/1.0\r\n";
    let answer = say_to_the_end(
        site.http,
        &format!("GET /a HTTP/1.0\r\nHost: {HOST}\r\n{keep}\r\n{last}Host: {HOST}\r\n\r\n"),
    )
    .await?;
    ensure!(
        answer.matches("HTTP/1.0 200").count() == 2,
        "two requests on a kept connection: {answer}"
    );
    let before = site.alice.requests();
    let answer = say_to_the_end(
        site.http,
        &format!("GET /a HTTP/1.0\r\nHost: {HOST}\r\n\r\n{last}Host: {HOST}\r\n\r\n"),
    )
    .await?;
    ensure!(
        answer.matches("HTTP/1.0 ").count() == 1,
        "a connection that is not kept has one request: {answer}"
    );
    ensure!(
        site.alice.requests() == before + 1,
        "and a backend sees one"
    );
    let head = format!("POST /a HTTP/1.0\r\nHost: {HOST}\r\n{keep}Transfer-Encoding: chunked\r\n");
    let answer = say_to_the_end(
        site.http,
        &format!("{head}Content-Length: 4\r\n\r\n0\r\n\r\n{last}Host: {HOST}\r\n\r\n"),
    )
    .await?;
    ensure!(status(&answer) == Some(400), "two lengths: {answer}");
    ensure!(
        answer.matches("HTTP/1.0 ").count() == 1,
        "nothing after it is a request: {answer}"
    );
    let inner = format!("{last}Host: {HOST}\r\n\r\n");
    let chunk = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
    let before = site.alice.requests();
    let answer =
        say_to_the_end(site.http, &format!("{}\r\n{chunk}", head.replace(keep, ""))).await?;
    ensure!(
        seen(&answer)?["body"] == inner,
        "chunks are a body: {answer}"
    );
    ensure!(site.alice.requests() == before + 1, "and no request");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn websocket_is_the_only_protocol_that_a_connection_is_upgraded_to() -> Result<()> {
    let site = Site::start(&[]).await?;
    let ask = async |protocol: &str| {
        let head = format!(
            "GET /a HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade, close\r\nUpgrade: {protocol}\r\n\r\n"
        );
        say(site.http, &head).await
    };
    for protocol in [
        "SPDY/3.1",
        "TLS/1.2",
        "tcp",
        "HTTP/2.0",
        "websocket, SPDY/3.1",
    ] {
        let answer = ask(protocol).await?;
        ensure!(status(&answer) == Some(403), "{protocol}: {answer}");
        let url = format!("http://{HOST}:{}/a", site.http);
        let (code, told) = site.ask(&["explain", "--upgrade", protocol, &url])?;
        let expected = format!("to {protocol}, answered 403");
        ensure!(
            code == 1 && told.contains("FAILS") && told.contains(&expected),
            "{code}: {told}"
        );
    }
    // Clients offer it with their first request; it is ignored, and smuggles nothing past the
    // routes.
    let answer = ask("h2c").await?;
    ensure!(
        seen(&answer)?["headers"]["upgrade"].is_null(),
        "a backend sees no upgrade: {answer}"
    );
    for protocol in ["websocket", "h2c"] {
        let url = format!("http://{HOST}:{}/a", site.http);
        let (code, told) = site.ask(&["explain", "--upgrade", protocol, &url])?;
        ensure!(code == 0, "{protocol} {code}: {told}");
    }
    Ok(())
}
