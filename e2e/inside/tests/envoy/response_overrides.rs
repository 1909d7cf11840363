//! Answers in place of errors by TrafficPolicies on a real Envoy: which errors they replace, what
//! of a response is left, and what stays as it is.

use anyhow::{Result, ensure};
use e2e::websocket::over_http2;
use e2e_inside::world::{gatewright, object};
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::Change;
use hyper::Method;
use hyper::header::HeaderName;
use serde_json::{Value, json};

use super::body_site::{BodySite, HOST, OTHER, SOCKET, forward, policy};

/// What Envoy would read as command operators, if it read them.
const PAGE: &str = "<h1>100 % of %REQ(:PATH)% is away</h1> %%";
const GONE: &str = "{\"error\": \"gone\"}";

/// A page for 404 and 410, and one of a ConfigMap for other errors.
fn overrides() -> Value {
    let map = json!({"group": "", "kind": "ConfigMap", "name": "pages"});
    json!([
        {"match": {"statusCodes": [{"value": 404}, {"type": "Value", "value": 410}]},
            "response": {"contentType": "application/json", "body": {"inline": GONE}}},
        {"match": {"statusCodes": [{"type": "Range", "range": {"start": 400, "end": 502}}]},
            "response": {"contentType": "text/html; charset=utf-8",
                "body": {"type": "ValueRef", "valueRef": map}}},
        {"match": {"statusCodes": [{"type": "Range", "range": {"start": 503, "end": 599}}]},
            "response": {"statusCode": 500, "body": {"type": "ValueRef", "valueRef": map}}},
    ])
}

fn pages(text: &str) -> Change {
    object(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "pages"}, "data": {"response.body": text}}))
}

/// A rule for a path, with filters.
fn rule(path: &str, backend: &str, filters: Value) -> Value {
    json!({"name": &path[1..], "matches": [{"path": {"value": path}}], "filters": filters,
        "backendRefs": [{"name": backend, "port": 80}]})
}

async fn start() -> Result<BodySite> {
    let set = json!({"set": [{"name": "x-rule", "value": "its own"}]});
    let edits = json!([{"type": "ResponseHeaderModifier", "responseHeaderModifier": set}]);
    let cors = json!([{"type": "CORS", "cors": {"allowOrigins": ["https://a.org"]}}]);
    let server = json!({"name": "nobody", "port": 80});
    let ask = json!([{"type": "ExternalAuth",
        "externalAuth": {"protocol": "HTTP", "http": {}, "backendRef": server}}]);
    let answer = json!({"group": "gatewright.io", "kind": "DirectResponse", "name": "sorry"});
    let rules = json!([
        rule("/edited", "web", edits),
        rule("/closed", "web", json!([])),
        rule("/limited", "web", json!([])),
        rule("/asked", "web", ask),
        rule("/cors", "web", cors),
        rule("/away", "nobody", json!([])),
        rule("/none", "missing", json!([])),
        {"matches": [{"path": {"value": "/answer"}}],
            "filters": [{"type": "ExtensionRef", "extensionRef": answer}]},
        forward(),
    ]);
    let at_rule = |rule: &str| {
        json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "app",
            "sectionName": rule}])
    };
    let everyone = json!([{"limit": {"requests": 1, "per": "Hour"}, "by": {"type": "Everyone"}}]);
    let objects = vec![
        object(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": "default", "name": "nobody"}, "spec": {"ports": [{"port": 80}]}})),
        pages(PAGE),
        gatewright(
            "DirectResponse",
            "sorry",
            json!({"statusCode": 503, "body": {"inline": "at noon"}}),
        ),
        gatewright(
            "AccessPolicy",
            "closed",
            json!({"targetRefs": at_rule("closed"), "clientAddress": {"allow": ["192.0.2.1/32"]}}),
        ),
        gatewright(
            "TrafficPolicy",
            "limited",
            json!({"targetRefs": at_rule("limited"), "rateLimit": everyone}),
        ),
        policy("app", "responseOverride", overrides()),
        policy("app", "compression", json!({"minBytes": 64})),
        policy("ws", "responseOverride", overrides()),
    ];
    BodySite::start(rules, objects).await
}

/// Expects this status and body of a path.
async fn expect(site: &BodySite, path: &str, status: u16, body: &str) -> Result<()> {
    for probe in site.each(HOST, path) {
        let answer = site.send(&probe).await?;
        let at = format!("{path}: {answer:?}\n{}", site.world.envoy.log());
        ensure!(answer.status == status, "{at}");
        ensure!(answer.body == body.as_bytes(), "{at}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn errors_of_backends_get_the_page_and_other_responses_stay() -> Result<()> {
    let site = start().await?;
    expect(&site, "/status/404", 404, GONE).await?;
    expect(&site, "/status/410", 410, GONE).await?;
    expect(&site, "/status/422", 422, PAGE).await?;
    expect(&site, "/status/502", 502, PAGE).await?;
    expect(&site, "/status/503", 500, PAGE).await?;
    for (path, media) in [
        ("/status/404", "application/json"),
        ("/status/403", "text/html; charset=utf-8"),
        ("/status/503", "text/plain"),
    ] {
        for probe in site.each(HOST, path) {
            let answer = site.send(&probe).await?;
            ensure!(answer.header("content-type") == Some(media), "{answer:?}");
            let length = answer.body.len().to_string();
            let head = site.send(&probe.method(Method::HEAD)).await?;
            ensure!(head.status == answer.status, "{head:?}");
            ensure!(head.body.is_empty(), "{head:?}");
            ensure!(head.header("content-length") == Some(&length), "{head:?}");
        }
    }
    // What a client needs to go on, or asked for.
    for status in [200_u16, 201, 302, 401] {
        for probe in site.each(HOST, &format!("/status/{status}")) {
            let answer = site.send(&probe).await?;
            ensure!(answer.status == status, "{answer:?}");
            ensure!(answer.echoed("name")? == "web", "{answer:?}");
        }
    }
    for status in [204_u16, 304] {
        for probe in site.each(HOST, &format!("/status/{status}")) {
            let answer = site.send(&probe).await?;
            ensure!(answer.status == status, "{answer:?}");
            ensure!(answer.body.is_empty(), "{answer:?}");
        }
    }
    // A request with a long body, and a client that accepts an encoding, which the page has not.
    for probe in site.each(HOST, "/status/404") {
        let posted = probe.clone().method(Method::POST).body("x".repeat(300_000));
        let answer = site.send(&posted).await?;
        ensure!(answer.body == GONE.as_bytes(), "{answer:?}");
        let answer = site.send(&probe.header("accept-encoding", "gzip")).await?;
        ensure!(answer.header("content-encoding").is_none(), "{answer:?}");
        ensure!(answer.body == GONE.as_bytes(), "{answer:?}");
    }
    // The host without a policy.
    for probe in site.each(OTHER, "/status/404") {
        let answer = site.send(&probe).await?;
        ensure!(answer.echoed("name")? == "web", "{answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn errors_of_envoy_get_the_page_and_answers_of_the_author_stay() -> Result<()> {
    let site = start().await?;
    // No endpoint, no Service, a client that is not admitted, and a server that says nothing.
    expect(&site, "/away", 500, PAGE).await?;
    expect(&site, "/none", 500, PAGE).await?;
    expect(&site, "/closed", 403, PAGE).await?;
    expect(&site, "/asked", 403, PAGE).await?;
    // Each port counts for itself.
    for probe in site.each(HOST, "/limited") {
        site.send(&probe).await?;
    }
    expect(&site, "/limited", 429, PAGE).await?;
    expect(&site, "/answer", 503, "at noon").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_page_has_the_headers_of_the_route_and_none_of_the_response() -> Result<()> {
    let site = start().await?;
    // The backend's answers to this path have status 200: the rule's filter edits both.
    for probe in site.each(HOST, "/edited") {
        let answer = site.send(&probe).await?;
        ensure!(answer.header("x-rule") == Some("its own"), "{answer:?}");
    }
    for probe in site
        .each(HOST, "/cors")
        .map(|probe| probe.header("origin", "https://a.org"))
    {
        let answer = site.send(&probe).await?;
        let allowed = answer.header("access-control-allow-origin");
        ensure!(allowed == Some("https://a.org"), "{answer:?}");
    }
    // The echo says of which version its server is.
    for probe in site.each(HOST, "/status/404") {
        let answer = site.send(&probe).await?;
        let names: Vec<_> = answer.headers.keys().map(HeaderName::as_str).collect();
        let known = ["content-type", "content-length", "date", "connection"];
        ensure!(
            names.iter().all(|name| known.contains(name)),
            "headers of the response: {names:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_change_of_the_page_is_live_and_without_it_errors_are_as_they_were() -> Result<()> {
    let site = start().await?;
    site.world.settle(vec![pages("later")]).await?;
    expect(&site, "/status/500", 500, "later").await?;
    let map = ObjectKey::new(Kind::ConfigMap, ObjectName::new("default", "pages"));
    site.world.settle(vec![Change::delete(map)]).await?;
    for probe in site.each(HOST, "/status/500") {
        let answer = site.send(&probe).await?;
        ensure!(answer.echoed("name")? == "web", "{answer:?}");
    }
    site.world.settle(vec![pages(PAGE)]).await?;
    expect(&site, "/status/500", 500, PAGE).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_websocket_is_opened_behind_overrides() -> Result<()> {
    let site = start().await?;
    for (address, tls) in [(site.http, false), (site.https, true)] {
        let opened = over_http2(address, SOCKET, tls, &[]).await?;
        ensure!(opened.status == 200, "{opened:?}");
        let message = opened.message.unwrap_or_default();
        ensure!(message.starts_with("hello HTTP/1.1 "), "{message}");
    }
    Ok(())
}
