//! Envoy's defences at the edge: malformed requests, clients that hold connections open, and a
//! backend that never answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::gatewright::Gatewright;
use e2e::http1::read_answer;
use e2e::port::free_port;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::site::{FORWARD, LIMIT, SOON, Site, envoy_stat, named, route};

/// Sends these bytes to an HTTP/1.1 server; returns its answer, or what came before the connection
/// ended.
pub(crate) async fn say(port: u16, request: &str) -> Result<String> {
    let exchange = async {
        let mut answer = Vec::new();
        let _reset = read_answer(&mut write(port, request).await?, &mut answer).await;
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(LIMIT, exchange).await.context("no answer")?
}

/// Sends bytes, and returns all answers up to the end of the connection.
pub(crate) async fn say_to_the_end(port: u16, request: &str) -> Result<String> {
    let exchange = async {
        let mut answers = Vec::new();
        let _reset = write(port, request).await?.read_to_end(&mut answers).await;
        anyhow::Ok(String::from_utf8_lossy(&answers).into_owned())
    };
    timeout(LIMIT, exchange).await.context("no end")?
}

async fn write(port: u16, request: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    // It may answer and close before it has read everything.
    let _early = stream.write_all(request.as_bytes()).await;
    Ok(stream)
}

/// Sends a `GET` of a path, exactly as written, with further header lines.
async fn get(site: &Site, path: &str, headers: &str) -> Result<String> {
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: alice.example.org\r\nConnection: close\r\n{headers}\r\n"
    );
    say(site.http, &head).await
}

pub(crate) fn status(answer: &str) -> Option<u16> {
    answer.split(' ').nth(1)?.parse().ok()
}

/// Returns the request as the backend received it.
async fn asked(site: &Site, path: &str, headers: &str) -> Result<Value> {
    let answer = get(site, path, headers).await?;
    ensure!(status(&answer) == Some(200), "{path}: {answer}");
    let start = answer.find('{').context("JSON")?;
    let end = answer.rfind('}').context("JSON")?;
    Ok(serde_json::from_str(&answer[start..=end])?)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn odd_requests_are_refused_or_made_regular_before_a_backend_sees_them() -> Result<()> {
    let site = Site::start(&[]).await?;
    // Backends that treat `X_Forwarded_For` as `X-Forwarded-For` never receive it.
    let answer = get(&site, "/", "x_real_ip: 203.0.113.9\r\n").await?;
    ensure!(
        status(&answer) == Some(400),
        "an underscore in a header's name: {answer}"
    );

    for (path, seen) in [
        ("/a//b///c", "/a/b/c"),
        ("/a/../b", "/b"),
        ("/a/./b", "/a/b"),
        ("/a/%2e%2e/b", "/b"),
        ("/../../etc/passwd", "/etc/passwd"),
        // Matches and backends get an escaped slash as the client wrote it (docs/edge.md).
        ("/public%2F..%2Fadmin", "/public%2F..%2Fadmin"),
    ] {
        let asked = asked(&site, path, "").await;
        let found = asked.as_ref().ok().and_then(|asked| asked["path"].as_str());
        // A path above the root may be refused as well.
        let refused = path.starts_with("/../") && asked.is_err();
        ensure!(found == Some(seen) || refused, "{path}: {asked:?}");
    }

    let many: String = (0..257).map(|count| format!("x-{count}: 1\r\n")).collect();
    let answer = get(&site, "/", &many).await?;
    ensure!(
        status(&answer) == Some(431),
        "more than 256 header fields: {answer}"
    );
    let some: String = (0..240).map(|count| format!("x-{count}: 1\r\n")).collect();
    asked(&site, "/", &some).await?;
    let large = format!("x-large: {}\r\n", "a".repeat(61 << 10));
    let answer = get(&site, "/", &large).await?;
    ensure!(
        status(&answer) == Some(431),
        "more than 60 KiB of headers: {answer}"
    );
    asked(
        &site,
        "/",
        &format!("x-large: {}\r\n", "a".repeat(50 << 10)),
    )
    .await?;
    site.alice_is_unharmed(1).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_request_with_several_hosts_reaches_no_backend() -> Result<()> {
    let site = Site::start(&[]).await?;
    // Both serve whatever host Envoy makes of several.
    for (name, host) in [("wide", "*.wide.example.org"), ("other", "*.org")] {
        site.save(
            &format!("{name}.yaml"),
            &route("alice", name, host, FORWARD),
        )?;
    }
    let head = |hosts: &[&str]| {
        let hosts: String = hosts
            .iter()
            .map(|host| format!("Host: {host}\r\n"))
            .collect();
        format!("GET / HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n")
    };
    let until = Instant::now() + LIMIT;
    for host in ["a.wide.example.org", "any.org"] {
        while status(&say(site.http, &head(&[host])).await?) != Some(200) {
            ensure!(
                Instant::now() < until,
                "{host} is not served: {}",
                site.program.output()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }
    for hosts in [
        &["a.wide.example.org", "b.wide.example.org"][..],
        &["a.wide.example.org", "a.wide.example.org"],
        &["alice.example.org", "a.wide.example.org"],
        &["a.wide.example.org", "alice.example.org"],
        &["alice.example.org", "any.org"],
        &["a.wide.example.org,b.wide.example.org"],
        &["alice.example.org", "any.org:80"],
    ] {
        let answer = say(site.http, &head(hosts)).await?;
        ensure!(status(&answer) == Some(400), "{hosts:?}: {answer}");
    }
    site.alice_is_unharmed(1).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_address_of_the_client_is_appended_and_never_taken_from_the_client() -> Result<()> {
    let site = Site::start(&[]).await?;
    let forged = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\nX-Envoy-External-Address: 203.0.113.9\r\n\
                  X-Envoy-Internal: true\r\n";
    let asked = asked(&site, "/", forged).await?;
    let headers = &asked["headers"];
    let of = |name: &str| headers[name].as_array().cloned().unwrap_or_default();
    // For a client on its own machine, Envoy sends that machine's address.
    let forwarded = of("x-forwarded-for");
    let appended = forwarded
        .first()
        .and_then(Value::as_str)
        .and_then(|list| list.strip_prefix("203.0.113.9,"));
    ensure!(
        forwarded.len() == 1 && appended.is_some_and(|last| !last.contains("203.0.113.9")),
        "{headers}"
    );
    ensure!(of("x-forwarded-proto") == [json!("http")], "{headers}");
    ensure!(of("x-envoy-internal").is_empty(), "{headers}");
    ensure!(
        !of("x-envoy-external-address").contains(&json!("203.0.113.9")),
        "{headers}"
    );
    Ok(())
}

/// Headers by which a client says who it is.
const IDENTITY: [&str; 14] = [
    "X-Real-IP",
    "Forwarded",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Server",
    "X-Forwarded-Prefix",
    "X-Forwarded-Client-Cert",
    "X-Original-URL",
    "X-Original-Forwarded-For",
    "X-Rewrite-URL",
    "X-Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "Client-Cert",
];

/// Returns those that reach the backend.
async fn identity(site: &Site, more: &str) -> Result<Vec<&'static str>> {
    let forged: String = IDENTITY
        .iter()
        .map(|name| format!("{name}: evil.example\r\n"))
        .collect();
    let asked = asked(site, "/", &format!("{forged}X-Mine: kept\r\n{more}")).await?;
    ensure!(asked["headers"]["x-mine"] == json!(["kept"]), "{asked}");
    ensure!(
        asked["headers"]["x-forwarded-proto"] == json!(["http"]),
        "{asked}"
    );
    Ok(IDENTITY
        .into_iter()
        .filter(|name| asked["headers"].get(name.to_ascii_lowercase()).is_some())
        .collect())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn what_a_client_says_about_itself_reaches_backends_only_where_the_gateway_keeps_it()
-> Result<()> {
    let site = Site::start(&[]).await?;
    ensure!(
        identity(&site, "").await?.is_empty(),
        "{:?}",
        identity(&site, "").await?
    );
    let upgrade = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    ensure!(
        identity(&site, upgrade).await?.is_empty(),
        "{:?}",
        identity(&site, upgrade).await?
    );
    let said = site
        .tls("alice.example.org")
        .header("x-real-ip", "203.0.113.9")
        .send()
        .await?;
    ensure!(
        !String::from_utf8_lossy(&said.body).contains("203.0.113.9"),
        "over HTTP/2"
    );

    let base = std::fs::read_to_string(site.manifests.path().join("base.yaml"))?;
    let class = "gatewayClassName: ours\n";
    let reference = "  infrastructure: {parametersRef: {group: gatewright.io, kind: GatewayParameters, name: behind}}\n";
    let parameters = "apiVersion: gatewright.io/v1alpha1\nkind: GatewayParameters\n\
                      metadata: {name: behind, namespace: infra}\nspec: {identityHeaders: Keep}\n---\n";
    let keeping = parameters.to_owned() + &base.replace(class, &format!("{class}{reference}"));
    site.save("base.yaml", &keeping)?;
    let mut kept = IDENTITY.to_vec();
    // Envoy itself decides about this one.
    kept.retain(|name| *name != "X-Forwarded-Client-Cert");
    let until = Instant::now() + LIMIT;
    while identity(&site, "").await? != kept {
        ensure!(Instant::now() < until, "{:?}", identity(&site, "").await?);
    }
    site.save("base.yaml", &base)?;
    while !identity(&site, "").await?.is_empty() {
        ensure!(Instant::now() < until, "{:?}", identity(&site, "").await?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn connections_that_are_idle_or_old_are_ended() -> Result<()> {
    let site = Site::start(&[
        "--set",
        "connections.idleSeconds=1",
        "--set",
        "connections.maxAgeSeconds=2",
    ])
    .await?;
    let request = b"GET / HTTP/1.1\r\nHost: alice.example.org\r\n\r\n";
    // A client that sends one request and then nothing.
    let mut idle = TcpStream::connect((Ipv4Addr::LOCALHOST, site.http)).await?;
    idle.write_all(request).await?;
    let mut answer = Vec::new();
    timeout(LIMIT, idle.read_to_end(&mut answer))
        .await
        .context("an idle connection stays open")??;
    ensure!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    // A client that never sends anything.
    let mut silent = TcpStream::connect((Ipv4Addr::LOCALHOST, site.http)).await?;
    timeout(LIMIT, silent.read_to_end(&mut answer))
        .await
        .context("a silent connection stays open")??;
    // A client that is never idle is told by a response to close the connection.
    let mut busy = TcpStream::connect((Ipv4Addr::LOCALHOST, site.http)).await?;
    let began = Instant::now();
    let mut said = String::new();
    while !said.contains("connection: close") {
        ensure!(began.elapsed() < LIMIT, "an old connection stays open");
        busy.write_all(request)
            .await
            .context("it ends by an answer that says so")?;
        let mut chunk = [0; 4096];
        let read = busy.read(&mut chunk).await?;
        ensure!(read > 0, "it ends by an answer that says so");
        said = String::from_utf8_lossy(&chunk[..read]).to_ascii_lowercase();
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_backend_that_never_answers_uses_up_its_own_connections_alone() -> Result<()> {
    let site = Site::start(&["--set", "connections.toService=4"]).await?;
    site.save(
        "mallory.yaml",
        &route("mallory", "slow", "mallory.example.org", FORWARD),
    )?;
    site.served_by("mallory.example.org", "mallory").await?;
    let mut held = JoinSet::new();
    for _ in 0..64 {
        let port = site.http;
        let request =
            "GET /delay/60000 HTTP/1.1\r\nHost: mallory.example.org\r\nConnection: close\r\n\r\n";
        held.spawn(async move { say(port, request).await });
    }
    // Requests beyond the limit are answered at once, while the others wait.
    let mut refused = 0;
    while refused < 40 {
        let answer = timeout(Duration::from_secs(30), held.join_next())
            .await
            .context("all of them wait")?;
        let answer = answer.context("too few were refused")???;
        ensure!(status(&answer) == Some(503), "{answer}");
        refused += 1;
    }
    let active = envoy_stat(
        site.state.path(),
        "cluster.mallory/web_80.upstream_cx_active",
    )
    .await?;
    ensure!(
        active <= 6,
        "{active} connections to mallory's backend, for a limit of 4 and one more of each worker"
    );
    let began = Instant::now();
    ensure!(named(&site.plain("alice.example.org")).await? == "alice");
    ensure!(began.elapsed() < SOON, "alice waited {:?}", began.elapsed());
    site.alice_is_unharmed(1).await
}

/// An Envoy without free memory.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_envoy_without_memory_defends_itself_in_every_way_it_has() -> Result<()> {
    let port = free_port()?;
    let listener = json!({
        "name": "front",
        "address": { "socket_address": { "address": "127.0.0.1", "port_value": port } },
        "filter_chains": [{ "filters": [{ "name": "envoy.filters.network.http_connection_manager", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "front",
            "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [
                { "match": { "prefix": "/" }, "direct_response": { "status": 200 } } ] }] },
            "http_filters": [{ "name": "envoy.filters.http.router", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" } }],
        } }] }],
    });
    let dir = tempfile::tempdir()?;
    let mut bootstrap = Gatewright::bootstrap(dir.path())?;
    bootstrap["static_resources"]["listeners"] = json!([listener]);
    let heap = bootstrap["overload_manager"]["resource_monitors"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .find(|monitor| monitor["name"] == "envoy.resource_monitors.fixed_heap")
        .context("the heap is watched")?;
    // Less than Envoy itself uses.
    heap["typed_config"]["max_heap_size_bytes"] = json!("1048576");
    let envoy = e2e::envoy::Envoy::start(&bootstrap.to_string()).await?;
    for action in [
        "reduce_timeouts",
        "shrink_heap",
        "disable_http_keepalive",
        "reset_high_memory_stream",
        "stop_accepting_connections",
        "stop_accepting_requests",
        "reject_incoming_connections",
    ] {
        let until = Instant::now() + LIMIT;
        while envoy
            .stat(&format!("overload.envoy.overload_actions.{action}.active"))
            .await?
            != 1
        {
            ensure!(
                Instant::now() < until,
                "{action} is not among what it does:\n{}",
                envoy.log()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn readiness_is_asked_for_without_a_port() -> Result<()> {
    let site = Site::start(&[]).await?;
    let ask =
        |socket: &Path| Gatewright::run(&["ready", "--envoy-admin", &socket.display().to_string()]);
    let output = ask(&site.state.path().join("envoy-admin.sock"))?;
    ensure!(output.status.success(), "{output:?}");
    let output = ask(&site.state.path().join("nobody.sock"))?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(3) && told.contains("nobody.sock is not ready"),
        "{output:?}"
    );
    // Readiness is independent of other resources: all connections of the listeners are in use, and
    // it is ready all the same.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, site.http));
    let mut held = Vec::new();
    for _ in 0..200 {
        held.push(TcpStream::connect(address).await?);
    }
    let output = ask(&site.state.path().join("envoy-admin.sock"))?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}
