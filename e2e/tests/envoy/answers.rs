//! Responses by filters of routes, from objects to a real Envoy's answers: redirects and CORS.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use e2e::echo::Echo;
use e2e::probe::{Answer, Probe};
use e2e::world::{World, api, class, free_port, service};
use hyper::Method;
use serde_json::{Value, json};

const HOST: &str = "app.example.org";

async fn world(port: u16, rules: Value) -> Result<(World, Echo)> {
    let echo = Echo::start("web").await?;
    let listeners = json!([{"name": "http", "port": port, "protocol": "HTTP"}]);
    let mut changes = vec![
        class(),
        api("Gateway", "edge", json!({"gatewayClassName": "ours", "listeners": listeners})),
        api("HTTPRoute", "app", json!({"parentRefs": [{"name": "edge"}], "hostnames": [HOST], "rules": rules})),
    ];
    changes.extend(service("web", echo.address()));
    Ok((World::start(changes).await?, echo))
}

fn to(port: u16, path: &str) -> Probe {
    Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HOST).path(path)
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.get(name).and_then(|value| value.to_str().ok())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_location_has_no_port_that_goes_without_saying() -> Result<()> {
    let port = free_port()?;
    let rule = |path: &str, redirect: Value| json!({"matches": [{"path": {"value": path}}], "filters": [{"type": "RequestRedirect", "requestRedirect": redirect}]});
    let rules = json!([
        rule("/https", json!({"scheme": "https"})),
        rule("/https-443", json!({"scheme": "https", "port": 443})),
        rule("/http-80", json!({"scheme": "http", "port": 80})),
        rule("/port", json!({"scheme": "https", "port": 8443})),
        rule("/own", json!({"statusCode": 301})),
    ]);
    let (world, _echo) = world(port, rules).await?;
    for (path, expected) in [
        ("/https", format!("https://{HOST}/https")),
        ("/https-443", format!("https://{HOST}/https-443")),
        ("/http-80", format!("http://{HOST}/http-80")),
        ("/port", format!("https://{HOST}:8443/port")),
        ("/own", format!("http://{HOST}:{port}/own")),
    ] {
        for authority in [HOST.to_owned(), format!("{HOST}:{port}")] {
            let answer = to(port, path).authority(&authority).send().await?;
            assert_eq!(header(&answer, "location"), Some(expected.as_str()), "{authority}\n{}", world.envoy.log());
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_preflight_is_answered_with_what_it_asks_for() -> Result<()> {
    let port = free_port()?;
    let cors = json!({"allowOrigins": ["*"], "allowMethods": ["*"], "allowHeaders": ["*"], "allowCredentials": true});
    let rules = json!([{"filters": [{"type": "CORS", "cors": cors}], "backendRefs": [{"name": "web", "port": 80}]}]);
    let (world, echo) = world(port, rules).await?;
    let preflight = to(port, "/")
        .method(Method::OPTIONS)
        .header("origin", "https://a.test")
        .header("access-control-request-method", "DELETE");
    let asked = preflight.clone().header("access-control-request-headers", "x-a, x-b").send().await?;
    assert_eq!(header(&asked, "access-control-allow-origin"), Some("https://a.test"), "{}", world.envoy.log());
    assert_eq!(header(&asked, "access-control-allow-methods"), Some("DELETE"));
    assert_eq!(header(&asked, "access-control-allow-headers"), Some("x-a, x-b"));
    assert_eq!(header(&asked, "access-control-allow-credentials"), Some("true"));
    let plain = preflight.send().await?;
    assert_eq!(header(&plain, "access-control-allow-methods"), Some("DELETE"));
    assert_eq!(header(&plain, "access-control-allow-headers"), None, "{:?}", plain.headers);
    assert_eq!(echo.requests(), 0, "no preflight reaches the backend");
    Ok(())
}
