//! Compression by TrafficPolicies on a real Envoy: what is compressed, with which algorithm, and
//! what stays as it is.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::probe::{Answer, Probe};
use e2e::websocket::{WebSocketServer, over_http2};
use e2e::world::{World, class, edge, edge_route, free_port, object, secret, service};
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::process::Command;

const HOST: &str = "app.example.org";
const OTHER: &str = "other.example.org";
const SOCKET: &str = "ws.example.org";
/// A value for a header that makes the answer of a backend longer than `minBytes`.
const FILLING: usize = 3000;

/// A policy of the route, by its name.
fn policy(name: &str, compression: Value) -> Change {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name});
    object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"targetRefs": [target], "compression": compression}}),
    )
}

/// A rule for a path whose answers have this header.
fn with_header(path: &str, (name, value): (&str, &str)) -> Value {
    let set = json!({"set": [{"name": name, "value": value}]});
    json!({"matches": [{"path": {"value": path}}],
        "filters": [{"type": "ResponseHeaderModifier", "responseHeaderModifier": set}],
        "backendRefs": [{"name": "web", "port": 80}]})
}

/// A site on a port for HTTP and one for HTTPS, with a backend whose answers are JSON.
struct Site {
    http: SocketAddr,
    https: SocketAddr,
    world: World,
    _web: Echo,
    _socket: WebSocketServer,
}

impl Site {
    async fn start(compression: Value) -> Result<Self> {
        let [http, https] = [free_port()?, free_port()?];
        let web = Echo::start("web").await?;
        let socket = WebSocketServer::start(None).await?;
        let listeners = json!([{"name": "http", "port": http, "protocol": "HTTP"},
            {"name": "https", "port": https, "protocol": "HTTPS", "hostname": "*.example.org",
                "tls": {"certificateRefs": [{"name": "app"}]}}]);
        let forward = json!({"backendRefs": [{"name": "web", "port": 80}]});
        let rules = json!([
            with_header("/strong", ("etag", "\"one\"")),
            with_header("/weak", ("etag", "W/\"one\"")),
            with_header("/kept", ("cache-control", "no-transform")),
            with_header("/encoded", ("content-encoding", "gzip")),
            with_header("/image", ("content-type", "image/png")),
            with_header("/vary", ("vary", "Origin")),
            forward.clone(),
        ]);
        let mut changes = vec![
            class(),
            secret("app", "*.example.org")?,
            edge(listeners),
            edge_route("app", HOST, rules),
            edge_route("other", OTHER, json!([forward])),
            edge_route(
                "ws",
                SOCKET,
                json!([{"backendRefs": [{"name": "ws", "port": 80}]}]),
            ),
            policy("app", compression),
            policy("ws", json!({})),
        ];
        changes.extend(service("web", web.address()));
        changes.extend(service("ws", socket.address()));
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self {
            http: at(http),
            https: at(https),
            world: World::start(changes).await?,
            _web: web,
            _socket: socket,
        })
    }

    /// Requests with long answers: on plain HTTP, and over TLS by both versions of HTTP.
    fn by(&self, host: &str, path: &str) -> [Probe; 3] {
        [
            Probe::http(self.http, host),
            Probe::https(self.https, host).alpn(&["http/1.1"]),
            Probe::https(self.https, host).alpn(&["h2"]),
        ]
        .map(|probe| probe.path(path).header("x-filling", &"x".repeat(FILLING)))
    }

    /// The answers to a client that accepts these encodings.
    async fn answers(&self, host: &str, path: &str, accepted: &str) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        for probe in self.by(host, path) {
            let answer = probe.header("accept-encoding", accepted).send().await;
            answers.push(answer.with_context(|| self.world.envoy.log())?);
        }
        Ok(answers)
    }

    /// Expects an encoding of a path, or none, and whether caches are told that there are several.
    async fn expect(
        &self,
        path: &str,
        accepted: &str,
        encoding: Option<&str>,
        varies: bool,
    ) -> Result<()> {
        for answer in self.answers(HOST, path, accepted).await? {
            let at = format!("{path} for {accepted}: {:?}", answer.headers);
            ensure!(answer.header("content-encoding") == encoding, "{at}");
            let vary = answer.header("vary").unwrap_or_default();
            ensure!(vary.contains("Accept-Encoding") == varies, "{at}");
        }
        Ok(())
    }
}

/// The body of an answer as curl decodes it, and the bytes that came over the network.
async fn curled(address: SocketAddr, options: &[&str]) -> Result<(String, usize)> {
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
    let site = Site::start(json!({})).await?;
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
    let site = Site::start(json!({})).await?;
    site.expect("/", "gzip, br", Some("br"), true).await?;
    site.expect("/", "br;q=0.5, gzip", Some("gzip"), true)
        .await?;
    site.expect("/", "gzip", Some("gzip"), true).await?;
    site.expect("/", "zstd, identity", None, true).await?;
    site.expect("/", "gzip;q=0", None, true).await?;
    // What the backend has compressed, a part of a body, and what nobody may change.
    site.expect("/encoded", "gzip, br", Some("gzip"), false)
        .await?;
    site.expect("/status/206", "gzip, br", None, false).await?;
    site.expect("/kept", "gzip, br", None, false).await?;
    // An image is compressed by itself.
    site.expect("/image", "gzip, br", None, false).await?;
    site.expect("/status/503", "gzip", Some("gzip"), true)
        .await?;
    for answer in site.answers(HOST, "/encoded", "gzip").await? {
        ensure!(answer.echoed("name")? == "web", "compressed twice");
    }
    for path in ["/strong", "/weak"] {
        for answer in site.answers(HOST, path, "gzip").await? {
            ensure!(answer.header("etag") == Some("W/\"one\""), "{answer:?}");
        }
    }
    for answer in site.answers(HOST, "/strong", "identity").await? {
        ensure!(answer.header("etag") == Some("\"one\""), "{answer:?}");
    }
    for answer in site.answers(HOST, "/vary", "gzip").await? {
        let all: Vec<_> = answer.headers.get_all("vary").iter().collect();
        ensure!(
            format!("{all:?}").contains("Origin") && format!("{all:?}").contains("Accept-Encoding"),
            "{all:?}"
        );
    }
    // The host without a policy.
    for answer in site.answers(OTHER, "/", "gzip, br").await? {
        ensure!(
            answer.header("content-encoding").is_none() && answer.header("vary").is_none(),
            "{answer:?}"
        );
    }
    // Backends are asked as the client asks.
    for answer in site.answers(HOST, "/kept", "br;q=0.1").await? {
        let asked = answer.echoed("headers")?["accept-encoding"].clone();
        ensure!(asked == json!(["br;q=0.1"]), "{asked}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_policy_says_which_types_sizes_and_algorithms() -> Result<()> {
    let policy = json!({"types": ["image/png"], "minBytes": 100_000, "algorithms": ["Gzip"]});
    let site = Site::start(policy).await?;
    site.expect("/", "gzip, br", None, false).await?;
    site.expect("/image", "gzip, br", None, false).await?;
    let smaller = json!({"types": ["Image/PNG"], "minBytes": 64, "algorithms": ["Gzip", "Brotli"]});
    site.world
        .settle(vec![self::policy("app", smaller)])
        .await?;
    site.expect("/", "gzip, br", None, false).await?;
    site.expect("/image", "br, gzip", Some("gzip"), true)
        .await?;
    site.expect("/image", "br", Some("br"), true).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_websocket_is_not_compressed() -> Result<()> {
    let site = Site::start(json!({})).await?;
    for (address, tls) in [(site.http, false), (site.https, true)] {
        let opened = over_http2(address, SOCKET, tls, &[("accept-encoding", "gzip, br")]).await?;
        ensure!(opened.status == 200, "{opened:?}");
        let message = opened.message.unwrap_or_default();
        ensure!(message.starts_with("hello HTTP/1.1 "), "{message}");
    }
    Ok(())
}
