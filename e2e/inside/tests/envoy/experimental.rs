//! The experimental channel on a real Envoy: session persistence and external authorization here,
//! the rest below.

mod default_gateways;
mod traffic_policies;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use e2e::auth::{AuthServer, KEY};
use e2e::echo::Echo;
use e2e::grpc::Grpc;
use e2e::probe::{Answer, Probe};
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{World, class, edge, edge_route, free_port, object, secret, service};
use gatewright_core::translate::Change;
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

const HOST: &str = "app.example.org";

fn gateway(http: u16, https: u16) -> Result<Vec<Change>> {
    let tls = json!({"certificateRefs": [{"name": "app"}]});
    let listeners = json!([{"name": "http", "port": http, "protocol": "HTTP"},
        {"name": "https", "port": https, "protocol": "HTTPS", "hostname": HOST, "tls": tls}]);
    Ok(vec![class(), secret("app", HOST)?, edge(listeners)])
}

fn route(rules: &Value) -> Change {
    edge_route("app", HOST, rules)
}

/// Adds an address behind port 80 of Service `web`.
fn second(address: SocketAddr) -> Change {
    object(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": "web-2", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "p", "port": address.port()}], "endpoints": [{"addresses": [address.ip().to_string()]}]}),
    )
}

fn to(port: u16, path: &str) -> Probe {
    Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HOST).path(path)
}

fn said(answer: &Answer) -> Result<Value> {
    ensure!(
        answer.status == 200,
        "answered {}: {}",
        answer.status,
        String::from_utf8_lossy(&answer.body)
    );
    Ok(serde_json::from_slice(&answer.body)?)
}

/// Returns the backends that answer `times` requests.
async fn by(probe: &Probe, times: usize) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for _ in 0..times {
        names.insert(
            said(&probe.send().await?)?["name"]
                .as_str()
                .context("a name")?
                .to_owned(),
        );
    }
    Ok(names)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_session_stays_with_its_endpoint() -> Result<()> {
    let http = free_port()?;
    let https = free_port()?;
    let one = Echo::start("one").await?;
    let two = Echo::start("two").await?;
    let other = Echo::start("other").await?;
    let rule = |path: &str, session: Value| {
        json!({"matches": [{"path": {"value": path}}], "sessionPersistence": session,
            "backendRefs": [{"name": "web", "port": 80}]})
    };
    let permanent = json!({"absoluteTimeout": "5m", "cookie": {"name": "sid", "path": "/shop", "lifetimeType": "Permanent"}});
    let plain = json!({"matches": [{"path": {"value": "/"}}], "backendRefs": [{"name": "web", "port": 80}]});
    let rules = json!([
        rule("/cookie", json!({})),
        rule("/shop", permanent),
        rule(
            "/header",
            json!({"type": "Header", "header": {"name": "X-Session"}})
        ),
        plain,
    ]);
    let mut changes = gateway(http, https)?;
    changes.extend(service("web", one.address()));
    changes.extend(service("other", other.address()));
    changes.extend([second(two.address()), route(&rules)]);
    let world = World::start(changes).await?;
    let both = BTreeSet::from(["one".to_owned(), "two".to_owned()]);
    assert_eq!(
        by(&to(http, "/"), 30).await?,
        both,
        "without a session requests are balanced"
    );

    // A cookie with the default name: for the whole host, until the browser session ends, and over
    // TLS for TLS only.
    let first = to(http, "/cookie").send().await?;
    let cookie = first.header("set-cookie").context("a cookie")?;
    let (pair, attributes) = cookie.split_once("; ").context("attributes")?;
    assert!(pair.starts_with("session-"), "{cookie}");
    assert_eq!(attributes, "Path=/; SameSite=Strict; HttpOnly");
    let whose = BTreeSet::from([said(&first)?["name"].as_str().context("a name")?.to_owned()]);
    assert_eq!(
        by(&to(http, "/cookie").header("cookie", pair), 30).await?,
        whose,
        "{}",
        world.envoy.log()
    );
    let secure = Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, https)), HOST)
        .path("/cookie")
        .send()
        .await?;
    let attributes = secure
        .header("set-cookie")
        .and_then(|cookie| cookie.split_once("; "))
        .context("a cookie")?
        .1;
    assert_eq!(attributes, "Path=/; Secure; SameSite=Strict; HttpOnly");

    // A permanent cookie has a lifetime.
    let permanent = to(http, "/shop/x").send().await?;
    let cookie = permanent.header("set-cookie").context("a cookie")?;
    assert!(
        cookie.starts_with("sid=") && cookie.contains("Max-Age=300; Path=/shop"),
        "{cookie}"
    );

    let first = to(http, "/header").send().await?;
    let token = first.header("x-session").context("a header")?;
    let whose = BTreeSet::from([said(&first)?["name"].as_str().context("a name")?.to_owned()]);
    assert_eq!(
        by(&to(http, "/header").header("x-session", token), 30).await?,
        whose
    );

    // Whatever a client writes into it: only endpoints of the route's own backend are reached.
    let forged = Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, http)), HOST).path("/header");
    for token in [
        base64(&other.address().to_string()),
        base64("127.0.0.1:1"),
        "%%%".to_owned(),
        String::new(),
    ] {
        let names = by(&forged.clone().header("x-session", &token), 10).await?;
        assert!(names.is_subset(&both), "{token}: {names:?}");
    }
    assert_eq!(other.requests(), 0);

    // Its endpoint is removed, and the session continues with the other.
    let gone = if whose.contains("one") {
        one.address()
    } else {
        two.address()
    };
    let left = if whose.contains("one") {
        two.address()
    } else {
        one.address()
    };
    let slices = [service("web", left).pop().context("a slice")?, second(left)];
    world.settle(slices.into()).await?;
    let names = by(
        &to(http, "/header").header("x-session", &base64(&gone.to_string())),
        10,
    )
    .await?;
    assert_eq!(names, both.difference(&whose).cloned().collect());
    Ok(())
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn nobody_passes_whom_the_authorization_server_does_not_let() -> Result<()> {
    let http = free_port()?;
    let https = free_port()?;
    let echo = Echo::start("web").await?;
    let auth = AuthServer::start().await?;
    let grpc = Grpc::start("grpc").await?;
    let rule = |path: &str, auth: Value| {
        json!({"matches": [{"path": {"value": path}}], "filters": [{"type": "ExternalAuth", "externalAuth": auth}],
            "backendRefs": [{"name": "web", "port": 80}]})
    };
    let to_server = |name: &str| json!({"name": name, "port": 80});
    let listed =
        json!({"path": "/check", "allowedHeaders": ["X-In"], "allowedResponseHeaders": ["X-User"]});
    let redirect = json!({"matches": [{"path": {"value": "/moved"}}],
        "filters": [{"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP", "http": {}, "backendRef": to_server("auth")}},
            {"type": "RequestRedirect", "requestRedirect": {"hostname": "elsewhere.example.org"}}]});
    let rules = json!([
        rule("/all", json!({"protocol": "HTTP", "http": {}, "backendRef": to_server("auth")})),
        rule("/listed", json!({"protocol": "HTTP", "http": listed, "backendRef": to_server("auth"), "forwardBody": {"maxSize": 8}})),
        rule("/grpc", json!({"protocol": "GRPC", "grpc": {}, "backendRef": to_server("grpc")})),
        rule("/down", json!({"protocol": "GRPC", "grpc": {}, "backendRef": to_server("down")})),
        rule("/missing", json!({"protocol": "HTTP", "http": {}, "backendRef": to_server("missing")})),
        redirect,
        {"matches": [{"path": {"value": "/open"}}], "backendRefs": [to_server("web")]},
    ]);
    let mut changes = gateway(http, https)?;
    let down = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    for (name, address) in [
        ("web", echo.address()),
        ("auth", auth.address()),
        ("grpc", grpc.address()),
        ("down", down),
    ] {
        changes.extend(service(name, address));
    }
    changes.push(route(&rules));
    let world = World::start(changes).await?;

    assert_eq!(
        to(http, "/open").send().await?.status,
        200,
        "a route without the filter asks nobody"
    );
    assert!(auth.asked().is_empty() && grpc.calls() == 0);
    let before = echo.requests();
    for (path, expected) in [
        ("/all", 401),
        ("/listed", 401),
        ("/moved", 401),
        ("/down", 403),
        ("/missing", 500),
    ] {
        assert_eq!(
            to(http, path).send().await?.status,
            expected,
            "{path}\n{}",
            world.envoy.log()
        );
    }
    assert_eq!(echo.requests(), before, "none of them reached the backend");
    assert_eq!(auth.asked().len(), 3);

    // The backend gets the headers of the authorization server that it may set, and no others.
    let passed = to(http, "/all")
        .header("authorization", KEY)
        .header("x-in", "1")
        .send()
        .await?;
    let headers = said(&passed)?["headers"].clone();
    assert_eq!(headers["x-user"], json!(["alice"]), "the user is passed on");
    assert_eq!(
        headers["x-extra"],
        json!(["1"]),
        "the extra header is passed on"
    );
    assert!(
        headers["x-gw-sni"].is_null() && headers["x-envoy-retry-on"].is_null(),
        "{headers}"
    );
    assert!(
        !headers["x-forwarded-for"].to_string().contains("192.0.2.1"),
        "{headers}"
    );
    let asked = auth.asked().pop().context("it was asked")?;
    assert_eq!(asked.line, "GET /all");
    assert!(
        asked.headers.get("x-in").is_none(),
        "a header that is not listed is not sent"
    );
    assert_eq!(
        asked.headers.get("host").map(|host| host.as_bytes()),
        Some(HOST.as_bytes())
    );
    assert!(
        asked
            .headers
            .keys()
            .all(|name| !name.as_str().starts_with("x-gw-")),
        "{:?}",
        asked.headers
    );

    let listed = to(http, "/listed/a?b=c")
        .method(Method::POST)
        .header("authorization", KEY)
        .header("x-in", "1");
    let passed = said(&listed.clone().body("12345678").send().await?)?;
    assert_eq!(
        passed["headers"]["x-user"],
        json!(["alice"]),
        "the user is that of the server"
    );
    assert_eq!(
        passed["headers"]["x-extra"],
        Value::Null,
        "a header that it does not set is not there"
    );
    assert_eq!(passed["body"], "12345678");
    let asked = auth.asked().pop().context("it was asked")?;
    assert_eq!(
        asked.line.as_str(),
        "POST /check/listed/a?b=c",
        "the path of the server precedes that of the request"
    );
    assert_eq!(&asked.body[..], &b"12345678"[..], "the body is passed on");
    assert_eq!(
        asked.headers.get("x-in").map(|value| value.as_bytes()),
        Some(&b"1"[..])
    );
    assert_eq!(
        listed.body("123456789").send().await?.status,
        413,
        "a larger body is not held"
    );
    assert!(
        auth.asked().is_empty(),
        "and nobody is asked about a part of it"
    );

    assert_eq!(
        to(http, "/moved")
            .header("authorization", KEY)
            .send()
            .await?
            .status,
        302
    );
    assert_eq!(to(http, "/grpc").send().await?.status, 200);
    assert_eq!(grpc.calls(), 1);
    drop((auth, grpc));
    for path in ["/all", "/grpc"] {
        let until = Instant::now() + PATIENCE;
        let probe = to(http, path).header("authorization", KEY);
        // The servers end in the background; then nobody answers.
        while probe.send().await?.status != 403 {
            ensure!(
                Instant::now() < until,
                "{path} is served unasked\n{}",
                world.envoy.log()
            );
        }
    }
    Ok(())
}
