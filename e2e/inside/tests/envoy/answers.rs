//! Responses by filters of routes, from objects to a real Envoy's answers: redirects, new paths,
//! retries and CORS.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e_inside::world::{World, class, edge, edge_route, free_port, service};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const HOST: &str = "app.example.org";

async fn world(port: u16, rules: Value) -> Result<(World, Echo)> {
    let echo = Echo::start("web").await?;
    let listeners = json!([{"name": "http", "port": port, "protocol": "HTTP"}]);
    let mut changes = vec![class(), edge(listeners), edge_route("app", HOST, rules)];
    changes.extend(service("web", echo.address()));
    Ok((World::start(changes).await?, echo))
}

fn to(port: u16, path: &str) -> Probe {
    Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HOST).path(path)
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
            assert_eq!(
                answer.header("location"),
                Some(expected.as_str()),
                "{authority}\n{}",
                world.envoy.log()
            );
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
    let asked = preflight
        .clone()
        .header("access-control-request-headers", "x-a, x-b")
        .send()
        .await?;
    assert_eq!(
        asked.header("access-control-allow-origin"),
        Some("https://a.test"),
        "{}",
        world.envoy.log()
    );
    assert_eq!(asked.header("access-control-allow-methods"), Some("DELETE"));
    assert_eq!(
        asked.header("access-control-allow-headers"),
        Some("x-a, x-b")
    );
    assert_eq!(
        asked.header("access-control-allow-credentials"),
        Some("true")
    );
    let plain = preflight.send().await?;
    assert_eq!(plain.header("access-control-allow-methods"), Some("DELETE"));
    assert_eq!(
        plain.header("access-control-allow-headers"),
        None,
        "{:?}",
        plain.headers
    );
    assert_eq!(echo.requests(), 0, "no preflight reaches the backend");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_new_path_is_a_path_and_the_query_follows_it() -> Result<()> {
    let port = free_port()?;
    let rule = |path: &str, kind: &str, field: &str, new: &str| {
        let change = json!({"type": kind, field: new});
        json!({"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web", "port": 80}],
            "filters": [{"type": "URLRewrite", "urlRewrite": {"path": change}}]})
    };
    let redirect = |path: &str, new: &str| {
        json!({"matches": [{"path": {"value": path}}], "filters": [{"type": "RequestRedirect",
            "requestRedirect": {"path": {"type": "ReplaceFullPath", "replaceFullPath": new}}}]})
    };
    let rules = json!([
        rule("/full", "ReplaceFullPath", "replaceFullPath", "/new"),
        rule(
            "/prefix",
            "ReplacePrefixMatch",
            "replacePrefixMatch",
            "/new"
        ),
        rule("/encoded", "ReplaceFullPath", "replaceFullPath", "/new%3Fa"),
        rule("/query", "ReplaceFullPath", "replaceFullPath", "/new?a=1"),
        rule(
            "/fragment",
            "ReplacePrefixMatch",
            "replacePrefixMatch",
            "/new#a"
        ),
        redirect("/redirect", "/new"),
        redirect("/redirect-query", "/new?a=1"),
    ]);
    let (world, _echo) = world(port, rules).await?;
    for (path, expected) in [
        ("/full?b=2", "/new?b=2"),
        ("/full", "/new"),
        ("/prefix/c?b=2", "/new/c?b=2"),
        ("/encoded?b=2", "/new%3Fa?b=2"),
    ] {
        let answer = to(port, path).send().await?;
        let said: Value = serde_json::from_slice(&answer.body)?;
        assert_eq!(said["path"], expected, "{path}\n{}", world.envoy.log());
    }
    for path in ["/query?b=2", "/fragment", "/redirect-query"] {
        assert_eq!(
            to(port, path).send().await?.status,
            500,
            "{path}: the rule is refused"
        );
    }
    let location = format!("http://{HOST}:{port}/new?b=2");
    assert_eq!(
        to(port, "/redirect?b=2").send().await?.header("location"),
        Some(location.as_str())
    );
    Ok(())
}

/// Starts a backend that answers gRPC calls with a status each, over one connection after the
/// other; returns its address.
async fn grpc_statuses(statuses: &'static [u8]) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        for status in statuses {
            let Ok((mut connection, _)) = listener.accept().await else {
                return;
            };
            let mut request = [0; 4096];
            let _ = connection.read(&mut request).await;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: {status}\r\ncontent-length: 0\r\n\
                 connection: close\r\n\r\n"
            );
            let _ = connection.write_all(answer.as_bytes()).await;
        }
    });
    Ok(address)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn what_a_grpc_server_rejects_as_unavailable_is_retried() -> Result<()> {
    /// A path, the statuses of the backend, the codes of `retry` if there is one, and the status
    /// that the client gets.
    type Case = (
        &'static str,
        &'static [u8],
        Option<&'static [u16]>,
        &'static str,
    );
    const CASES: [Case; 4] = [
        ("/plain", &[14, 0], None, "14"),
        ("/retried", &[14, 0], Some(&[]), "0"),
        ("/codes", &[14, 0], Some(&[503]), "0"),
        ("/internal", &[13, 0], Some(&[]), "13"),
    ];
    let port = free_port()?;
    let mut changes = Vec::new();
    let mut rules = Vec::new();
    for (path, statuses, codes, _) in CASES {
        let name = path.trim_start_matches('/');
        changes.extend(service(name, grpc_statuses(statuses).await?));
        let mut rule = json!({"matches": [{"path": {"value": path}}], "backendRefs": [{"name": name, "port": 80}]});
        if let Some(codes) = codes {
            rule["retry"] = json!({"attempts": 1, "codes": codes});
        }
        rules.push(rule);
    }
    let (world, _echo) = world(port, Value::Array(rules)).await?;
    world.settle(changes).await?;
    for (path, _, _, expected) in CASES {
        let answer = to(port, path)
            .method(Method::POST)
            .header("content-type", "application/grpc")
            .send()
            .await?;
        assert_eq!(
            answer.header("grpc-status"),
            Some(expected),
            "{path}\n{}",
            world.envoy.log()
        );
    }
    Ok(())
}
