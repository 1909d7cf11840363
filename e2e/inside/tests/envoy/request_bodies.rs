//! Bodies of requests that TrafficPolicies limit on a real Envoy: which are refused, which are
//! collected before a backend gets the request, and which pass as they come.

use anyhow::{Context, Result, ensure};
use e2e::probe::{Answer, Probe};
use e2e::tenants::until;
use e2e::websocket::over_http2;
use e2e_inside::world::gatewright;
use gatewright_core::translate::Change;
use hyper::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::body_site::{BodySite, HOST, OTHER, SOCKET, forward, policy};

/// The limit, of more than a frame of HTTP/2.
const MOST: usize = 20_000;
/// The most bytes of a frame of HTTP/2, by which a body of unknown length may exceed it.
const FRAME: usize = 16_384;

/// The limit of a route, and what is collected.
fn limit(route: &str, buffer: &str) -> Change {
    policy(
        route,
        "requestBody",
        json!({"maxBytes": MOST, "buffer": buffer}),
    )
}

async fn start(buffer: &str, mut others: Vec<Change>) -> Result<BodySite> {
    let closed = json!({"name": "closed", "matches": [{"path": {"value": "/closed"}}],
        "backendRefs": [{"name": "web", "port": 80}]});
    others.extend([limit("app", buffer), limit("ws", buffer)]);
    BodySite::start(json!([closed, forward()]), others).await
}

fn bytes(count: usize) -> Vec<u8> {
    vec![b'x'; count]
}

/// A request with a body, by its length and whether its header says that.
fn with(probe: &Probe, count: usize, has_length: bool) -> Probe {
    let probe = probe.clone().method(Method::POST);
    if has_length {
        probe.body(bytes(count))
    } else {
        probe.body_of_unknown_length(bytes(count))
    }
}

/// Expects this status of a body, by each version of HTTP, and returns the answers.
async fn expect(
    site: &BodySite,
    host: &str,
    (count, has_length): (usize, bool),
    status: u16,
) -> Result<Vec<Answer>> {
    let mut all = Vec::new();
    for probe in site.each(host, "/") {
        let probe = with(&probe, count, has_length);
        let answer = site.send(&probe).await?;
        ensure!(
            answer.status == status,
            "{count} bytes, {has_length}: {answer:?}\n{}",
            site.world.envoy.log()
        );
        if status == 200 {
            let body = answer.echoed("body")?;
            let found = body.as_str().context("a text")?.len();
            ensure!(found == count, "the backend got {found} bytes of {count}");
        }
        all.push(answer);
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_body_beyond_the_limit_is_refused_whether_its_length_is_known_or_not() -> Result<()> {
    let site = start("UnknownLength", Vec::new()).await?;
    for has_length in [true, false] {
        expect(&site, HOST, (0, has_length), 200).await?;
        expect(&site, HOST, (MOST, has_length), 200).await?;
        expect(&site, OTHER, (4 * MOST, has_length), 200).await?;
    }
    for answer in expect(&site, HOST, (MOST + 1, true), 413).await? {
        ensure!(answer.body == b"Payload Too Large"[..], "{answer:?}");
    }
    expect(&site, HOST, (MOST + FRAME + 1, false), 413).await?;
    let [http1, ..] = site.each(HOST, "/");
    let answer = site.send(&with(&http1, MOST + 1, false)).await?;
    ensure!(answer.status == 413, "{answer:?}");
    // The backend gets a collected body with its length.
    for answer in expect(&site, HOST, (MOST, false), 200).await? {
        let headers = answer.echoed("headers")?;
        ensure!(headers["content-length"] == json!(["20000"]), "{headers}");
    }
    websockets_open(&site).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_upgrade_that_is_none_is_no_way_around_the_limit() -> Result<()> {
    let site = start("UnknownLength", Vec::new()).await?;
    let [http1, secure, _] = site.each(HOST, "/");
    for probe in [http1, secure] {
        for (name, value) in [("upgrade", "websocket"), ("connection", "notupgrade")] {
            let probe = with(&probe, 4 * MOST, false).header(name, value);
            let answer = site.send(&probe).await?;
            ensure!(answer.status == 413, "{name}: {value}: {answer:?}");
        }
        let probe = with(&probe, 4 * MOST, false)
            .header("upgrade", "anything")
            .header("connection", "keep-alive, Upgrade");
        let answer = site.send(&probe).await?;
        ensure!(answer.status == 403, "no such protocol: {answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn bodies_of_unknown_length_pass_where_nothing_is_collected() -> Result<()> {
    let site = start("None", Vec::new()).await?;
    expect(&site, HOST, (MOST, true), 200).await?;
    expect(&site, HOST, (MOST + 1, true), 413).await?;
    expect(&site, HOST, (4 * MOST, false), 200).await?;
    Ok(())
}

/// Sends a request with a part of its body, and keeps the connection.
async fn half(site: &BodySite) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(site.http).await?;
    let head = format!("POST /half HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: 10\r\n\r\n12345");
    stream.write_all(head.as_bytes()).await?;
    Ok(stream)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_backend_gets_a_request_when_its_body_is_complete() -> Result<()> {
    let site = start("All", Vec::new()).await?;
    expect(&site, HOST, (MOST, true), 200).await?;
    expect(&site, HOST, (MOST + 1, true), 413).await?;
    let before = site.web.requests();
    let mut waiting = half(&site).await?;
    // Others are served meanwhile.
    for _ in 0..20 {
        site.each(HOST, "/")[0].answered(200).await?;
    }
    ensure!(site.web.requests() == before + 20, "the rest is missing");
    waiting.write_all(b"67890").await?;
    asked(&site, before + 21).await?;
    // Without the policy the beginning is enough.
    site.world
        .settle(vec![limit("app", "UnknownLength")])
        .await?;
    let _waiting = half(&site).await?;
    asked(&site, before + 22).await?;
    websockets_open(&site).await
}

/// Waits until the backend has got so many requests.
async fn asked(site: &BodySite, count: u64) -> Result<()> {
    let is_reached = async || Ok(site.web.requests() >= count);
    until("the backend has got the request", is_reached).await
}

/// Opens WebSockets over plain HTTP and over TLS.
async fn websockets_open(site: &BodySite) -> Result<()> {
    for (address, tls) in [(site.http, false), (site.https, true)] {
        let opened = over_http2(address, SOCKET, tls, &[]).await?;
        ensure!(opened.message.is_some(), "{opened:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_body_is_collected_for_those_who_may_pass_and_its_refusal_can_have_a_page() -> Result<()>
{
    let rule = json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "app",
        "sectionName": "closed"}]);
    let route = json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "app"}]);
    let page = json!([{"match": {"statusCodes": [{"value": 413}]},
        "response": {"contentType": "text/html", "body": {"inline": "<p>too long</p>"}}}]);
    let others = vec![
        gatewright(
            "AccessPolicy",
            "closed",
            json!({"targetRefs": rule, "clientAddress": {"allow": ["192.0.2.1/32"]}}),
        ),
        gatewright(
            "TrafficPolicy",
            "page",
            json!({"targetRefs": route, "responseOverride": page}),
        ),
    ];
    let site = start("UnknownLength", others).await?;
    for has_length in [true, false] {
        for answer in expect(&site, HOST, (4 * MOST, has_length), 413).await? {
            ensure!(answer.body == b"<p>too long</p>"[..], "{answer:?}");
        }
        for probe in site.each(HOST, "/closed") {
            let answer = site.send(&with(&probe, 4 * MOST, has_length)).await?;
            ensure!(answer.status == 403, "{answer:?}");
        }
    }
    Ok(())
}
