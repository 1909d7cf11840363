//! Filters of listeners on a real Envoy: who is asked before a route is looked for, and that there
//! is no way around.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use e2e::auth::{AuthServer, KEY};
use e2e::echo::Echo;
use e2e::grpc::Grpc;
use e2e::link::Link;
use e2e::probe::{Answer, Probe};
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{World, api, class, edge, free_port, object, secret, service};
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::{Hostname, ObjectName};
use gatewright_core::translate::{Asked, ChallengeAnswer, Change, Fact};
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

const GUARDED: &str = "app.example.org";
const OPEN: &str = "open.example.org";
/// A host of the wildcard listener.
const WIDE: &str = "wide.example.org";

fn server(name: &str) -> Value {
    json!({"name": name, "port": 80})
}

/// A filter that asks a server by HTTP.
fn ask(name: &str) -> Value {
    json!({"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP", "http": {}, "backendRef": server(name)}})
}

fn gateway(http: u16, https: u16, filters: &Value) -> Change {
    let tls = json!({"certificateRefs": [{"name": "app"}]});
    let listeners = json!([
        {"name": "guarded", "port": http, "protocol": "HTTP", "hostname": GUARDED, "filters": {"requests": filters}},
        {"name": "open", "port": http, "protocol": "HTTP", "hostname": OPEN},
        {"name": "wide", "port": https, "protocol": "HTTPS", "hostname": "*.example.org", "tls": tls,
            "filters": {"requests": filters}},
        {"name": "app", "port": https, "protocol": "HTTPS", "hostname": GUARDED, "tls": tls,
            "filters": {"requests": filters}},
        {"name": "exact", "port": https, "protocol": "HTTPS", "hostname": OPEN, "tls": tls},
    ]);
    edge(listeners)
}

fn route(name: &str, hosts: &[&str], rules: Value) -> Change {
    api(
        "HTTPRoute",
        name,
        json!({"parentRefs": [{"name": "edge"}], "hostnames": hosts, "rules": rules}),
    )
}

fn to(port: u16, host: &str, path: &str) -> Probe {
    Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), host).path(path)
}

fn over_tls(port: u16, host: &str) -> Probe {
    Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), host).alpn(&["h2"])
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

fn lines(server: &AuthServer) -> Vec<String> {
    server.asked().into_iter().map(|asked| asked.line).collect()
}

/// The hosts behind the filters: only requests that the authorization server allows reach them.
fn rules() -> Value {
    let to_alice =
        json!([{"path": {"value": "/anybody"}, "headers": [{"name": "X-User", "value": "alice"}]}]);
    let own = |path: &str, name: &str| {
        let auth = json!({"protocol": "GRPC", "grpc": {}, "backendRef": server(name)});
        let matches =
            json!([{"path": {"value": path}, "headers": [{"name": "X-User", "value": "alice"}]}]);
        json!({"matches": matches, "filters": [{"type": "ExternalAuth", "externalAuth": auth}],
            "sessionPersistence": {"cookie": {"name": "sid"}}, "backendRefs": [server("web")]})
    };
    json!([
        own("/own", "grpc"),
        own("/down", "down"),
        {"matches": [{"path": {"value": "/cors"}}], "filters": [{"type": "CORS", "cors": {"allowOrigins": ["*"]}}],
            "backendRefs": [server("web")]},
        {"matches": to_alice, "backendRefs": [server("web")]},
        {"matches": [{"path": {"value": "/anybody"}}], "backendRefs": [server("other")]},
    ])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn every_request_of_a_listener_is_asked_about_before_a_route_is_looked_for() -> Result<()> {
    let http = free_port()?;
    let https = free_port()?;
    let web = Echo::start("web").await?;
    let other = Echo::start("other").await?;
    let first = AuthServer::start().await?;
    let second = AuthServer::start().await?;
    let grpc = Grpc::start("grpc").await?;
    let down = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let mut changes = vec![
        class(),
        secret("app", "*.example.org")?,
        gateway(http, https, &json!([ask("first"), ask("second")])),
    ];
    let all = [
        ("web", web.address()),
        ("other", other.address()),
        ("first", first.address()),
        ("second", second.address()),
        ("grpc", grpc.address()),
        ("down", down),
    ];
    for (name, address) in all {
        changes.extend(service(name, address));
    }
    changes.push(route("app", &[GUARDED, WIDE], rules()));
    changes.push(route(
        "open",
        &[OPEN],
        json!([{"backendRefs": [server("web")]}]),
    ));
    let world = World::start(changes).await?;

    // The neighbours of the port ask nobody.
    assert_eq!(
        to(http, OPEN, "/").send().await?.status,
        200,
        "{}",
        world.envoy.log()
    );
    assert_eq!(over_tls(https, OPEN).send().await?.status, 200);
    assert!(first.asked().is_empty());

    // Every request is asked about, whatever is behind it: a path without a route, a preflight, a
    // host without a route.
    let before = (web.requests(), other.requests());
    for path in ["/anybody", "/own", "/down", "/cors", "/nothing"] {
        assert_eq!(
            to(http, GUARDED, path).send().await?.status,
            401,
            "{path}\n{}",
            world.envoy.log()
        );
        assert_eq!(lines(&first), [format!("GET {path}")], "{path}");
        for host in [GUARDED, WIDE] {
            assert_eq!(
                over_tls(https, host).path(path).send().await?.status,
                401,
                "{host}{path}"
            );
            assert_eq!(lines(&first), [format!("GET {path}")], "{host}{path}");
        }
    }
    let preflight = to(http, GUARDED, "/cors")
        .method(Method::OPTIONS)
        .header("origin", "https://a.org");
    let preflight = preflight.header("access-control-request-method", "GET");
    assert_eq!(preflight.send().await?.status, 401);
    assert_eq!(
        over_tls(https, "unrouted.example.org").send().await?.status,
        401
    );
    assert_eq!(first.asked().len(), 2);
    for spelled in ["APP.example.org", "app.example.org:80", "app.example.org."] {
        assert_eq!(
            to(http, GUARDED, "/anybody")
                .authority(spelled)
                .send()
                .await?
                .status,
            401,
            "{spelled}"
        );
        assert_eq!(
            over_tls(https, GUARDED)
                .authority(spelled)
                .path("/anybody")
                .send()
                .await?
                .status,
            401,
            "{spelled}"
        );
    }
    first.asked();
    assert_eq!(web.requests(), before.0, "none of them reached a backend");
    assert_eq!(other.requests(), before.1, "nor the other backend");
    assert!(
        second.asked().is_empty() && grpc.calls() == 0,
        "who is refused is refused by the first, and nobody else is asked"
    );

    // The answer of the servers decides which route it is, and the route's own filters are those of
    // that route.
    let over_tls_to = |host: &str| over_tls(https, host).path("/anybody");
    for probe in [
        to(http, GUARDED, "/anybody"),
        over_tls_to(GUARDED),
        over_tls_to(WIDE),
    ] {
        let passed = said(&probe.clone().header("authorization", KEY).send().await?)?;
        assert_eq!(passed["name"], json!("web"), "the backend answers");
        assert_eq!(
            passed["headers"]["x-user"],
            json!(["alice"]),
            "the user is passed on"
        );
        assert!(
            passed["headers"]["x-gw-route"].is_null() && passed["headers"]["x-gw-sni"].is_null(),
            "{passed}"
        );
        assert_eq!(lines(&first).len(), 1, "each is asked once");
        assert_eq!(lines(&second).len(), 1, "each is asked once");
    }
    let own = to(http, GUARDED, "/own")
        .header("authorization", KEY)
        .header("x-gw-route", "forged");
    let passed = own.send().await?;
    assert_eq!(said(&passed)?["name"], "web", "{}", world.envoy.log());
    assert_eq!(grpc.calls(), 1, "the route's own server is asked as well");
    assert!(
        passed
            .headers
            .get("set-cookie")
            .is_some_and(|cookie| cookie.as_bytes().starts_with(b"sid=")),
        "{passed:?}"
    );
    let refused = over_tls(https, WIDE)
        .path("/down")
        .header("authorization", KEY)
        .send()
        .await?;
    assert_eq!(
        refused.status, 403,
        "and has its say, though the request first had another route"
    );
    assert!(
        refused.headers.get("set-cookie").is_none(),
        "who does not pass gets no session"
    );
    assert_eq!(
        to(http, GUARDED, "/own")
            .header("x-user", "alice")
            .send()
            .await?
            .status,
        401,
        "nobody says who he is himself"
    );
    let nothing = over_tls(https, "unrouted.example.org")
        .header("authorization", KEY)
        .send()
        .await?;
    assert_eq!(nothing.status, 404);
    let asked = first.asked().pop().context("it was asked")?;
    assert!(
        asked
            .headers
            .keys()
            .all(|name| !name.as_str().starts_with("x-gw-")),
        "{:?}",
        asked.headers
    );

    // No connection of another listener leads past them.
    let mut connection = over_tls(https, OPEN).connect().await?;
    for host in [GUARDED, WIDE, "unrouted.example.org"] {
        let answer = connection
            .ask(&over_tls(https, host).path("/anybody"))
            .await?;
        assert_eq!(answer.status, 421, "{host} on a connection for {OPEN}");
    }
    for host in [GUARDED, WIDE] {
        let mut connection = over_tls(https, host).connect().await?;
        assert_eq!(connection.ask(&over_tls(https, OPEN)).await?.status, 421);
    }
    Ok(())
}

/// A policy of sessions on a Service.
fn sessions(name: &str) -> Change {
    object(
        json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackendTrafficPolicy",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": name}],
            "sessionPersistence": {"type": "Cookie", "cookie": {"name": "sid"}}}}),
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn filters_of_shares_run_only_for_the_route_that_the_servers_choose() -> Result<()> {
    let http = free_port()?;
    let web = Echo::start("web").await?;
    let other = Echo::start("other").await?;
    let first = AuthServer::start().await?;
    let own = AuthServer::start().await?;
    let mut changes = vec![
        class(),
        secret("app", "*.example.org")?,
        gateway(http, free_port()?, &json!([ask("first")])),
    ];
    for (name, address) in [
        ("web", web.address()),
        ("other", other.address()),
        ("first", first.address()),
        ("own", own.address()),
    ] {
        changes.extend(service(name, address));
    }
    let alice =
        json!([{"path": {"value": "/alice"}, "headers": [{"name": "X-User", "value": "alice"}]}]);
    changes.push(route(
        "chosen",
        &[GUARDED],
        json!([{"matches": alice, "backendRefs": [server("web")]}]),
    ));
    // Without the header of the server this route takes every request.
    let shares = json!([{"name": "other", "port": 80, "weight": 1}, {"name": "other", "port": 80, "weight": 1}]);
    let only = json!([{"path": {"value": "/only"}}]);
    let rules = json!([
        {"filters": [ask("own")], "backendRefs": shares},
        {"matches": only, "backendRefs": [server("other")]},
    ]);
    changes.extend([route("wide", &[GUARDED], rules), sessions("other")]);
    let world = World::start(changes).await?;

    let ask_for = |path: &'static str| to(http, GUARDED, path).header("authorization", KEY);
    let passed = ask_for("/alice").send().await?;
    assert_eq!(said(&passed)?["name"], "web", "{}", world.envoy.log());
    assert!(
        own.asked().is_empty(),
        "the server of another route is asked nothing"
    );
    assert!(passed.headers.get("set-cookie").is_none(), "{passed:?}");

    let session = |answer: &Answer| {
        answer
            .headers
            .get("set-cookie")
            .is_some_and(|cookie| cookie.as_bytes().starts_with(b"sid="))
    };
    let passed = ask_for("/elsewhere").send().await?;
    assert_eq!(said(&passed)?["name"], "other");
    assert_eq!(own.asked().len(), 1, "asked once for its own route");
    assert!(session(&passed), "{passed:?}");
    let passed = ask_for("/only").send().await?;
    assert_eq!(said(&passed)?["name"], "other");
    assert!(session(&passed) && own.asked().is_empty(), "{passed:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_check_that_comes_back_as_a_request_is_a_loop() -> Result<()> {
    for protocol in ["HTTP", "GRPC"] {
        let http = free_port()?;
        let web = Echo::start("web").await?;
        // Envoy itself, by way of another program, which can be any Service of a tenant.
        let back = Link::start(SocketAddr::from((Ipv4Addr::LOCALHOST, http))).await?;
        let auth = json!({"protocol": protocol, protocol.to_lowercase(): {}, "backendRef": server("back")});
        let filter = json!({"type": "ExternalAuth", "externalAuth": auth});
        let listener = json!({"name": "all", "port": http, "protocol": "HTTP", "filters": {"requests": [filter]}});
        let mut changes = vec![
            class(),
            api(
                "Gateway",
                "edge",
                json!({"gatewayClassName": "ours", "listeners": [listener]}),
            ),
        ];
        changes.extend(
            service("web", web.address())
                .into_iter()
                .chain(service("back", back.address())),
        );
        changes.push(route("app", &[], json!([{"backendRefs": [server("web")]}])));
        let world = World::start(changes).await?;
        assert_eq!(
            to(http, GUARDED, "/").send().await?.status,
            403,
            "{protocol}\n{}",
            world.envoy.log()
        );
        let requests = world
            .envoy
            .stat(&format!("http.default/edge_{http}.downstream_rq_total"))
            .await?;
        assert!(
            (2..=3).contains(&requests),
            "{protocol}: {requests} for one"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn where_nobody_can_be_asked_nobody_passes_and_challenges_are_answered() -> Result<()> {
    let http = free_port()?;
    let https = free_port()?;
    let web = Echo::start("web").await?;
    let auth = AuthServer::start().await?;
    let mut changes = vec![
        class(),
        secret("app", "*.example.org")?,
        gateway(http, https, &json!([])),
    ];
    changes.extend(service("web", web.address()));
    changes.push(route(
        "app",
        &[GUARDED, OPEN, WIDE],
        json!([{"backendRefs": [server("web")]}]),
    ));
    let hostname = Hostname::parse(GUARDED).context("a hostname")?;
    let answer = Some(ChallengeAnswer {
        port: http,
        thumbprint: "thumb".into(),
    });
    changes.push(Change::Fact(Fact::Challenge(
        Asked {
            hostname,
            namespace: "default".into(),
        },
        answer,
    )));
    let world = World::start(changes).await?;
    let probes = [
        to(http, GUARDED, "/"),
        over_tls(https, GUARDED),
        over_tls(https, WIDE),
    ];
    for probe in &probes {
        assert_eq!(probe.send().await?.status, 200, "{}", world.envoy.log());
    }
    // Connections from before the filters have no way around them either.
    let mut kept = [
        probes[0].connect().await?,
        probes[1].connect().await?,
        probes[2].connect().await?,
    ];
    for connection in kept.iter_mut().zip(&probes) {
        assert_eq!(connection.0.ask(connection.1).await?.status, 200);
    }
    let challenge = to(http, GUARDED, "/.well-known/acme-challenge/token");
    assert_eq!(challenge.send().await?.body, "token.thumb");
    let extension = json!({"type": "ExtensionRef", "extensionRef": {"group": "example.org", "kind": "Jwt", "name": "x"}});
    for filters in [
        json!([ask("auth")]),
        json!([ask("web"), extension]),
        json!([ask("auth")]),
    ] {
        world.settle(vec![gateway(http, https, &filters)]).await?;
        let before = web.requests();
        for (connection, probe) in kept.iter_mut().zip(&probes) {
            let probe = probe.clone().header("authorization", KEY);
            assert_eq!(
                probe.send().await?.status,
                500,
                "{filters}\n{}",
                world.envoy.log()
            );
            if connection.takes_more().await {
                assert_eq!(connection.ask(&probe).await?.status, 500, "{filters}");
            }
        }
        assert_eq!(web.requests(), before);
        let answered = challenge.send().await?;
        assert_eq!(answered.status, 200, "the challenge is answered");
        assert_eq!(
            &answered.body[..],
            &b"token.thumb"[..],
            "with its key authorization"
        );
        assert_eq!(
            to(http, OPEN, "/").send().await?.status,
            200,
            "neighbours are served"
        );
    }
    // The server comes, and goes.
    world.settle(service("auth", auth.address())).await?;
    for probe in &probes {
        assert_eq!(probe.send().await?.status, 401);
        assert_eq!(
            probe
                .clone()
                .header("authorization", KEY)
                .send()
                .await?
                .status,
            200
        );
    }
    auth.asked();
    assert_eq!(challenge.send().await?.status, 200);
    assert!(auth.asked().is_empty(), "a CA shows no credentials");
    drop(auth);
    for probe in &probes {
        let until = Instant::now() + PATIENCE;
        // It ends in the background; then nobody answers.
        while probe
            .clone()
            .header("authorization", KEY)
            .send()
            .await?
            .status
            != 403
        {
            ensure!(
                Instant::now() < until,
                "served unasked\n{}",
                world.envoy.log()
            );
        }
    }
    // Without filters everybody passes again.
    let gone = ObjectKey::new(Kind::Service, ObjectName::new("default", "auth"));
    world
        .settle(vec![Change::delete(gone), gateway(http, https, &json!([]))])
        .await?;
    for probe in &probes {
        assert_eq!(probe.send().await?.status, 200);
    }
    // A Service of another namespace wants a grant.
    let elsewhere = json!([{"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP", "http": {},
        "backendRef": {"name": "auth", "namespace": "other", "port": 80}}}]);
    let there = object(
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "other", "name": "auth"},
        "spec": {"ports": [{"name": "p", "port": 80}]}}),
    );
    world
        .settle(vec![there, gateway(http, https, &elsewhere)])
        .await?;
    for probe in &probes {
        assert_eq!(probe.send().await?.status, 500);
    }
    Ok(())
}
