//! Hosts on a port of plain HTTP on a real Envoy: whatever way a client writes a host, it finds the
//! routes of the most specific hostname, and every filter of these routes.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use e2e::auth::{AuthServer, KEY};
use e2e::echo::Echo;
use e2e::http1::read_answer;
use e2e::probe::{Answer, Probe};
use e2e::websocket::WebSocketServer;
use e2e_inside::world::{World, api, class, edge, free_port, object, service};
use gatewright_core::inputs::Kind;
use gatewright_core::model::Hostname;
use gatewright_core::translate::{Asked, ChallengeAnswer, Change, Fact, ResourceKey};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn gateway(listeners: Value) -> Change {
    edge(listeners)
}

fn listener(name: &str, port: u16, hostname: Option<&str>) -> Value {
    json!({"name": name, "port": port, "protocol": "HTTP", "hostname": hostname})
}

fn route(name: &str, section: &str, hosts: &[&str], rules: Value) -> Change {
    let parent = json!({"name": "edge", "sectionName": section});
    api(
        "HTTPRoute",
        name,
        json!({"parentRefs": [parent], "hostnames": hosts, "rules": rules}),
    )
}

fn to(service: &str) -> Value {
    json!([{"backendRefs": [{"name": service, "port": 80}]}])
}

/// The name of the backend that answered, or the status.
fn by(answer: &Answer) -> String {
    let echoed: Result<Value, _> = serde_json::from_slice(&answer.body);
    match echoed {
        Ok(echoed) if answer.status == 200 => echoed["name"].as_str().unwrap_or("?").to_owned(),
        _ => answer.status.to_string(),
    }
}

/// Sends a request as it is written, and returns the whole answer.
async fn raw(port: u16, request: &str) -> Result<String> {
    let mut stream = TcpStream::connect(at(port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    read_answer(&mut stream, &mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The backend or status of an answer that was read as it is.
fn raw_by(answer: &str) -> String {
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    let names = ["exact", "below", "wide", "deep", "any"];
    let named = names
        .iter()
        .find(|name| answer.contains(&format!("\"name\":\"{name}\"")));
    named.map_or(status, |name| (*name).to_owned())
}

/// Every kind of hostname on one port.
async fn served(port: u16, more: Vec<Change>) -> Result<(World, Vec<Echo>)> {
    let mut changes = vec![
        class(),
        gateway(json!([
            listener("exact", port, Some("a.org")),
            listener("wide", port, Some("*.b.org")),
            listener("any", port, None),
        ])),
        route("exact", "exact", &[], to("exact")),
        route("wide", "wide", &[], to("wide")),
        route("below", "wide", &["x.b.org"], to("below")),
        route("deep", "wide", &["*.deep.b.org"], to("deep")),
        route("any", "any", &[], to("any")),
    ];
    let mut echoes = Vec::new();
    for name in ["exact", "wide", "below", "deep", "any"] {
        let echo = Echo::start(name).await?;
        changes.extend(service(name, echo.address()));
        echoes.push(echo);
    }
    changes.extend(more);
    Ok((World::start(changes).await?, echoes))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn every_spelling_of_a_host_finds_the_most_specific_hostname() -> Result<()> {
    let port = free_port()?;
    let (world, _echoes) = served(port, Vec::new()).await?;
    let spellings = [
        ("a.org", "exact"),
        ("A.ORG", "exact"),
        ("a.org:80", "exact"),
        ("a.org:8080", "exact"),
        ("A.org:8080", "exact"),
        ("a.org.", "exact"),
        ("A.Org.", "exact"),
        ("a.org.:80", "exact"),
        ("x.b.org", "below"),
        ("X.B.ORG", "below"),
        ("x.b.org:80", "below"),
        ("X.b.org:80", "below"),
        ("y.b.org", "wide"),
        ("Y.B.Org", "wide"),
        ("y.b.org:81", "wide"),
        ("y.x.b.org", "wide"),
        ("y.b.org.", "wide"),
        ("*.b.org", "wide"),
        ("deep.b.org", "wide"),
        ("y.deep.b.org", "deep"),
        ("Z.Y.Deep.B.org:80", "deep"),
        ("b.org", "any"),
        ("xb.org", "any"),
        ("other.example", "any"),
        ("localhost", "any"),
        ("192.0.2.1", "any"),
        ("192.0.2.1:80", "any"),
        ("[2001:db8::1]", "any"),
        ("[2001:db8::1]:80", "any"),
        ("*", "any"),
        ("..a.org", "any"),
    ];
    for (host, expected) in spellings {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = raw(port, &request).await?;
        assert_eq!(
            raw_by(&answer),
            expected,
            "{host}: {answer}\n{}",
            world.envoy.log()
        );
        assert!(
            answer.contains(&format!("\"host\":[\"{}\"]", host.trim_end_matches('.')))
                || host.contains(".:"),
            "{host} reaches the backend as it was written, without a final dot: {answer}"
        );
        assert!(!answer.contains("x-gw-"), "{host}: {answer}");
    }
    let answer = raw(
        port,
        "GET / HTTP/1.1\r\nHost: :80\r\nConnection: close\r\n\r\n",
    )
    .await?;
    assert!(answer.starts_with("HTTP/1.1 400"), "no host: {answer}");
    // HTTP/2, and absolute form.
    let h2 = |host: &str| Probe::http(at(port), host).alpn(&["h2"]);
    for (host, expected) in [
        ("a.org", "exact"),
        ("a.org:80", "exact"),
        ("x.b.org", "below"),
        ("y.b.org", "wide"),
        ("other.example", "any"),
    ] {
        assert_eq!(by(&h2(host).send().await?), expected, "{host} over HTTP/2");
        let request = format!(
            "GET http://{host}/ HTTP/1.1\r\nHost: ignored.example\r\nConnection: close\r\n\r\n"
        );
        let answer = raw(port, &request).await?;
        assert_eq!(raw_by(&answer), expected, "http://{host}/: {answer}");
    }
    // One connection, many hosts.
    let mut connection = Probe::http(at(port), "a.org").connect().await?;
    for (host, expected) in [
        ("y.b.org", "wide"),
        ("a.org", "exact"),
        ("X.b.org", "below"),
    ] {
        let answer = connection.ask(&Probe::http(at(port), host)).await?;
        assert_eq!(by(&answer), expected, "{host} on a kept connection");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn requests_with_no_host_several_or_an_invalid_one_are_refused() -> Result<()> {
    let port = free_port()?;
    let (world, echoes) = served(port, Vec::new()).await?;
    let requests = [
        ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", "400"),
        ("GET / HTTP/1.0\r\n\r\n", "400"),
        (
            "GET / HTTP/1.1\r\nHost: a.org\r\nHost: x.b.org\r\nConnection: close\r\n\r\n",
            "400",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a.org,y.b.org\r\nConnection: close\r\n\r\n",
            "400",
        ),
        (
            "GET / HTTP/1.1\r\nHost: A.org,Y.b.org:80\r\nConnection: close\r\n\r\n",
            "400",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a.org,other.example\r\nConnection: close\r\n\r\n",
            "400",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n",
            "400",
        ),
    ];
    let invalid = [
        "a.org:80@other.example",
        "a.org:x",
        "a.org:'x",
        "a.org:%00",
        "a.org:99999999",
        "A.org:x",
        "user@y.b.org",
        "user:secret@y.b.org",
        "y.b.org:80:80",
        "other.example:x",
        "[::1]x",
        ":80",
    ]
    .map(|host| format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    let invalid = invalid.iter().map(|request| (request.as_str(), "400"));
    for (request, expected) in requests.into_iter().chain(invalid) {
        let answer = raw(port, request).await?;
        assert_eq!(
            raw_by(&answer),
            expected,
            "{request}: {answer}\n{}",
            world.envoy.log()
        );
    }
    assert!(
        echoes.iter().all(|echo| echo.requests() == 0),
        "none of them reached a backend"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_host_without_a_hostname_is_answered_404() -> Result<()> {
    let port = free_port()?;
    let echo = Echo::start("exact").await?;
    let mut changes = vec![
        class(),
        gateway(json!([
            listener("exact", port, Some("a.org")),
            listener("wide", port, Some("*.b.org")),
        ])),
        route("exact", "exact", &[], to("exact")),
    ];
    changes.extend(service("exact", echo.address()));
    let world = World::start(changes).await?;
    for (host, expected) in [
        ("A.org:80", "exact"),
        ("x.b.org", "404"),
        ("b.org", "404"),
        ("other.example", "404"),
        ("OTHER.example:80", "404"),
    ] {
        let answer = Probe::http(at(port), host).send().await?;
        assert_eq!(by(&answer), expected, "{host}\n{}", world.envoy.log());
        assert!(
            answer.status == 200 || answer.body.is_empty(),
            "{host}: {answer:?}"
        );
    }
    Ok(())
}

/// The hosts by which a request finds its route at once, and by which it is searched for.
const FOUND: [&str; 4] = ["a.org", "A.org", "y.b.org", "other.example"];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn every_filter_of_a_route_holds_however_the_route_is_found() -> Result<()> {
    let port = free_port()?;
    let (web, auth, own) = (
        Echo::start("web").await?,
        AuthServer::start().await?,
        AuthServer::start().await?,
    );
    let ask = |name: &str| json!({"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP", "http": {}, "backendRef": {"name": name, "port": 80}}});
    let web_ref = json!([{"name": "web", "port": 80}]);
    let path = |path: &str| json!([{"path": {"value": path}}]);
    let rules = json!([
        {"matches": path("/open"), "backendRefs": web_ref},
        {"matches": path("/guarded"), "filters": [ask("own")], "backendRefs": web_ref,
            "sessionPersistence": {"cookie": {"name": "sid"}}},
        {"matches": path("/cors"), "filters": [{"type": "CORS", "cors": {"allowOrigins": ["https://o.test"]}}],
            "backendRefs": web_ref},
        {"matches": path("/moved"), "filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]},
    ]);
    let sections = ["exact", "wide", "any"];
    let listeners = |filters: Value| {
        let named = [
            ("exact", Some("a.org")),
            ("wide", Some("*.b.org")),
            ("any", None),
        ];
        let made = named.map(|(name, hostname)| {
            let mut made = listener(name, port, hostname);
            made["filters"] = json!({"requests": filters});
            made
        });
        gateway(json!(made))
    };
    let mut changes = vec![class(), listeners(json!([]))];
    changes.extend(sections.map(|name| route(name, name, &[], rules.clone())));
    for (name, address) in [
        ("web", web.address()),
        ("auth", auth.address()),
        ("own", own.address()),
    ] {
        changes.extend(service(name, address));
    }
    let world = World::start(changes).await?;
    let get = |host: &str, path: &str| Probe::http(at(port), host).path(path);
    for host in FOUND {
        let log = || format!("{host}\n{}", world.envoy.log());
        let forged = get(host, "/open")
            .header("forwarded", "for=192.0.2.9")
            .header("x-gw-scope", "default/edge/80|a.org")
            .header("x-gw-route", "forged");
        let answer = forged.send().await?;
        assert_eq!(by(&answer), "web", "{}", log());
        let echoed = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(!echoed.contains("192.0.2.9"), "{host}: {echoed}");
        assert_eq!(get(host, "/guarded").send().await?.status, 401, "{}", log());
        assert_eq!(own.asked().len(), 1, "{}", log());
        let allowed = get(host, "/guarded")
            .header("authorization", KEY)
            .send()
            .await?;
        assert_eq!(by(&allowed), "web", "{}", log());
        assert!(
            allowed.headers.contains_key("set-cookie"),
            "a session: {}",
            log()
        );
        own.asked();
        let cross = get(host, "/cors")
            .header("origin", "https://o.test")
            .send()
            .await?;
        assert!(
            cross.headers.contains_key("access-control-allow-origin"),
            "{}",
            log()
        );
        let moved = get(host, "/moved")
            .authority(&format!("{host}:443"))
            .send()
            .await?;
        let location = moved.headers.get("location").context("a location")?;
        assert_eq!(
            location.to_str()?.to_ascii_lowercase(),
            format!("https://{}/moved", host.to_ascii_lowercase()),
            "without the default port"
        );
        let upload = get(host, "/open").body(vec![b'x'; 200_000]);
        assert_eq!(by(&upload.send().await?), "web", "a body: {}", log());
        assert_eq!(get(host, "/nowhere").send().await?.status, 404, "{}", log());
    }
    // Filters of the listeners: every request is asked about before its route is looked for.
    world.settle(vec![listeners(json!([ask("auth")]))]).await?;
    for host in FOUND {
        let before = web.requests();
        for path in ["/open", "/guarded", "/cors", "/moved", "/nowhere"] {
            let answer = get(host, path).send().await?;
            assert_eq!(answer.status, 401, "{host}{path}\n{}", world.envoy.log());
            assert_eq!(auth.asked().len(), 1, "{host}{path}");
        }
        assert_eq!(web.requests(), before, "{host}: none reached the backend");
        let allowed = get(host, "/guarded").header("authorization", KEY);
        assert_eq!(by(&allowed.send().await?), "web", "{host}");
        assert_eq!(auth.asked().len(), 1, "{host}: that of the listener");
        assert_eq!(own.asked().len(), 1, "{host}: that of the route");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn websockets_pass_under_a_wildcard_as_under_an_exact_hostname() -> Result<()> {
    let port = free_port()?;
    let server = WebSocketServer::start(None).await?;
    let mut changes = vec![
        class(),
        gateway(json!([
            listener("exact", port, Some("a.org")),
            listener("any", port, None),
        ])),
        route("exact", "exact", &[], to("ws")),
        route("any", "any", &[], to("ws")),
    ];
    changes.extend(service("ws", server.address()));
    let world = World::start(changes).await?;
    for host in ["a.org", "A.org", "other.example"] {
        let request = format!(
            "GET /ws HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        let mut stream = TcpStream::connect(at(port)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut first = [0; 12];
        stream.read_exact(&mut first).await?;
        assert_eq!(&first, b"HTTP/1.1 101", "{host}\n{}", world.envoy.log());
    }
    Ok(())
}

/// An account answers the challenges of a host here.
fn challenged(port: u16, host: &str) -> Result<Change> {
    let answer = ChallengeAnswer {
        port,
        thumbprint: "thumb".into(),
    };
    let asked = Asked {
        hostname: Hostname::parse(host)?,
        namespace: "default".into(),
    };
    Ok(Change::Fact(Fact::Challenge(asked, Some(answer))))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn challenges_are_answered_and_all_else_is_served_as_before() -> Result<()> {
    let (port, https) = (free_port()?, free_port()?);
    let tls = json!({"certificateRefs": [{"name": "app"}]});
    let hosts = ["a.org", "x.b.org", "guest.b.org", "guest.example"];
    let more = |name: &str, hostname: &str| json!({"name": name, "port": https, "protocol": "HTTPS", "hostname": hostname, "tls": tls});
    let mut listeners = vec![
        listener("exact", port, Some("a.org")),
        listener("wide", port, Some("*.b.org")),
        listener("any", port, None),
    ];
    listeners.extend(
        hosts
            .iter()
            .enumerate()
            .map(|(n, host)| more(&format!("tls{n}"), host)),
    );
    let mut changes = vec![
        e2e_inside::world::secret("app", "*.example")?,
        gateway(json!(listeners)),
    ];
    for host in hosts {
        changes.push(challenged(port, host)?);
    }
    let (world, _echoes) = served(port, changes).await?;
    for (host, otherwise) in [
        ("a.org", "exact"),
        ("A.Org:80", "exact"),
        ("x.b.org", "below"),
        ("guest.b.org", "wide"),
        ("Guest.b.org", "wide"),
        ("guest.example", "any"),
        ("GUEST.example:80", "any"),
    ] {
        let get = |path: &str| Probe::http(at(port), host).path(path);
        let answer = get("/.well-known/acme-challenge/token").send().await?;
        assert_eq!(
            String::from_utf8_lossy(&answer.body),
            "token.thumb",
            "{host}\n{}",
            world.envoy.log()
        );
        assert_eq!(by(&get("/").send().await?), otherwise, "{host}");
        let deeper = get("/.well-known/acme-challenge/a/b").send().await?;
        assert_eq!(by(&deeper), otherwise, "{host}: no challenge");
    }
    let stranger = Probe::http(at(port), "y.b.org").path("/.well-known/acme-challenge/token");
    assert_eq!(by(&stranger.send().await?), "wide", "nobody proves it");
    Ok(())
}

/// The objects of a host of its own on the port.
fn host(n: usize, path: &str) -> Change {
    let rules = json!([{"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "any", "port": 80}]}]);
    route(
        &format!("h{n}"),
        "any",
        &[&format!("h{n}.example.org")],
        rules,
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_change_of_one_host_sends_that_host_and_nothing_of_others() -> Result<()> {
    let port = free_port()?;
    let (world, _echoes) = served(port, (0..200).map(|n| host(n, "/")).collect()).await?;
    let steps = [
        host(200, "/"),
        host(7, "/moved"),
        Change::delete(gatewright_core::inputs::ObjectKey::new(
            Kind::HTTPRoute,
            gatewright_core::model::ObjectName::new("default", "h200"),
        )),
    ];
    for step in steps {
        let (delta, generation) = world.apply(vec![step]);
        world.acknowledged(generation).await?;
        let keys: Vec<_> = delta.resources.keys().collect();
        let [ResourceKey::Scope(_, hostname)] = keys.as_slice() else {
            panic!("more than one scope: {keys:?}")
        };
        assert!(
            ["h200.example.org", "h7.example.org"].contains(&hostname.as_str()),
            "{hostname}"
        );
    }
    for (name, path, expected) in [
        ("h7.example.org", "/", "404"),
        ("h7.example.org", "/moved", "any"),
        ("H8.example.org", "/", "any"),
    ] {
        let answer = Probe::http(at(port), name).path(path).send().await?;
        assert_eq!(by(&answer), expected, "{name}{path}");
    }
    Ok(())
}

/// GatewayParameters of an installation whose clients are all proxies.
fn behind_proxies() -> Change {
    object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "default", "name": "proxied"}, "spec": {"identityHeaders": "Keep"}}),
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn headers_of_proxies_are_kept_however_the_route_is_found() -> Result<()> {
    let port = free_port()?;
    let proxied = api(
        "Gateway",
        "edge",
        json!({"gatewayClassName": "ours",
        "infrastructure": {"parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters", "name": "proxied"}},
        "listeners": [
            listener("exact", port, Some("a.org")),
            listener("wide", port, Some("*.b.org")),
            listener("any", port, None),
        ]}),
    );
    let (world, _echoes) = served(port, vec![behind_proxies(), proxied]).await?;
    for host in FOUND {
        let probe = Probe::http(at(port), host).header("forwarded", "for=192.0.2.9");
        let echoed = probe.send().await?;
        let body = String::from_utf8_lossy(&echoed.body).into_owned();
        assert!(
            body.contains("192.0.2.9"),
            "{host}: {body}\n{}",
            world.envoy.log()
        );
    }
    Ok(())
}
