//! WebSockets through a real Envoy: from a browser, and from a client over HTTP/2 that sends no key
//! (RFC 8441), to backends over HTTP/1.1 and HTTP/2, in plain text and over TLS.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use e2e::chromium::Chromium;
use e2e::probe::Probe;
use e2e::tls_backend::TestRoot;
use e2e::websocket::{Opened, WebSocketServer, over_http2};
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{World, api, class, edge, edge_route, free_port, object, secret, service};
use gatewright_core::translate::Change;
use serde_json::json;
use tokio::time::timeout;

const HOST: &str = "ws.example.org";

/// The key of requests over HTTP/2, behind the part that differs.
const OURS: &str = "Gatewright/AAA==";

/// An Envoy with an HTTP and an HTTPS listener in front of a server.
struct Site {
    server: WebSocketServer,
    http: SocketAddr,
    https: SocketAddr,
    _world: World,
}

impl Site {
    async fn start(server: WebSocketServer, more: Vec<Change>) -> Result<Self> {
        let http = free_port()?;
        let https = free_port()?;
        let listeners = json!([
            {"name": "http", "port": http, "protocol": "HTTP"},
            {"name": "https", "port": https, "protocol": "HTTPS", "hostname": HOST,
                "tls": {"certificateRefs": [{"name": "ws"}]}},
        ]);
        let rules = json!([{"backendRefs": [{"name": "ws", "port": 80}]}]);
        let mut changes = vec![
            class(),
            edge(listeners),
            edge_route("ws", HOST, rules),
            secret("ws", HOST)?,
        ];
        changes.extend(service("ws", server.address()));
        changes.extend(more);
        let world = World::start(changes).await?;
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self {
            server,
            http: at(http),
            https: at(https),
            _world: world,
        })
    }

    /// A server in plain text over HTTP/1.1.
    async fn plain() -> Result<Self> {
        Self::start(WebSocketServer::start(None).await?, Vec::new()).await
    }

    /// A server over TLS and HTTP/1.1.
    async fn tls() -> Result<Self> {
        let root = TestRoot::new("root")?;
        let server = WebSocketServer::start(Some(&root.issue("ws.internal", None)?)).await?;
        let roots = object(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": "ca"}, "data": {"ca.crt": root.pem()}}));
        let validation = json!({"hostname": "ws.internal",
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]});
        let targets = json!([{"group": "", "kind": "Service", "name": "ws"}]);
        let policy = api(
            "BackendTLSPolicy",
            "ws",
            json!({"targetRefs": targets, "validation": validation}),
        );
        Self::start(server, vec![roots, policy]).await
    }

    /// A server in plain text over HTTP/2.
    async fn h2c() -> Result<Self> {
        let spoken = object(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": "default", "name": "ws"},
            "spec": {"ports": [{"name": "p", "port": 80, "appProtocol": "kubernetes.io/h2c"}]}}));
        Self::start(WebSocketServer::start(None).await?, vec![spoken]).await
    }

    /// Opens WebSockets over HTTP/2 on both listeners.
    async fn over_http2(&self) -> Result<[Opened; 2]> {
        let plain = timeout(PATIENCE, over_http2(self.http, HOST, false, &[]))
            .await
            .context("in plain text")??;
        let tls = timeout(PATIENCE, over_http2(self.https, HOST, true, &[]))
            .await
            .context("over TLS")??;
        Ok([plain, tls])
    }

    /// Opens the page in a browser, and returns what it tells.
    async fn browsed(&mut self, url: &str, address: SocketAddr) -> Result<String> {
        let _browser = Chromium::open(url, HOST, address)?;
        timeout(PATIENCE, self.server.told())
            .await
            .context("the page tells nothing")?
    }
}

fn message(opened: &Opened) -> &str {
    assert!(opened.offered, "the settings offer the extended CONNECT");
    assert_eq!(opened.status, 200, "the WebSocket is opened");
    opened.message.as_deref().expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_client_over_http2_without_a_key_reaches_servers_over_http1() -> Result<()> {
    for site in [Site::plain().await?, Site::tls().await?] {
        for opened in site.over_http2().await? {
            let message = message(&opened);
            assert!(message.starts_with("hello HTTP/1.1 "), "{message}");
            assert!(message.ends_with(OURS), "{message}");
        }
        let [first, second] = site.over_http2().await?;
        assert_ne!(first.message, second.message, "keys differ");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_client_over_http2_reaches_a_server_over_http2() -> Result<()> {
    for opened in Site::h2c().await?.over_http2().await? {
        let message = message(&opened);
        assert!(message.starts_with("hello HTTP/2.0 "), "{message}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_key_of_the_client_stays_and_http1_without_a_key_is_refused() -> Result<()> {
    let site = Site::plain().await?;
    let own = "dGhlIHNhbXBsZSBub25jZQ==";
    let opened = over_http2(site.https, HOST, true, &[("sec-websocket-key", own)]).await?;
    assert_eq!(message(&opened), format!("hello HTTP/1.1 {own}"));
    let upgrade = |probe: Probe| {
        let probe = probe
            .alpn(&["http/1.1"])
            .path("/ws")
            .header("connection", "Upgrade");
        probe
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
    };
    for probe in [Probe::http(site.http, HOST), Probe::https(site.https, HOST)] {
        let answer = upgrade(probe.clone()).send().await?;
        assert_eq!(
            answer.status, 400,
            "the server refuses an upgrade without a key (RFC 6455, 4.2.1)"
        );
        let answer = upgrade(probe)
            .header("sec-websocket-key", own)
            .send()
            .await?;
        assert_eq!(answer.status, 101, "an upgrade with a key");
        let accepted = answer
            .headers
            .get("sec-websocket-accept")
            .map(|value| value.as_bytes().to_vec());
        assert_eq!(
            accepted.as_deref(),
            Some(&b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="[..]),
            "the server's answer to the key"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Chromium"]
async fn a_browser_that_has_a_page_over_http2_opens_its_websocket_there() -> Result<()> {
    for mut site in [Site::plain().await?, Site::tls().await?] {
        let http = site.http;
        let https = site.https;
        let mut is_over_http2 = false;
        // A browser whose HTTP/2 connection is not ready makes one of its own for the WebSocket,
        // with a key.
        for _ in 0..10 {
            let told = site.browsed(&format!("https://{HOST}/"), https).await?;
            assert!(told.starts_with("h2 hello HTTP/1.1 "), "{told}");
            is_over_http2 = told.ends_with(OURS);
            if is_over_http2 {
                break;
            }
        }
        assert!(
            is_over_http2,
            "no WebSocket came over HTTP/2, without a key of the browser's"
        );
        let told = site.browsed(&format!("http://{HOST}/"), http).await?;
        assert!(told.starts_with("http/1.1 hello HTTP/1.1 "), "{told}");
        assert!(!told.ends_with(OURS), "the browser's own key: {told}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Chromium"]
async fn a_browser_reaches_a_server_over_http2() -> Result<()> {
    let mut site = Site::h2c().await?;
    let https = site.https;
    let told = site.browsed(&format!("https://{HOST}/"), https).await?;
    assert!(told.starts_with("h2 hello HTTP/2.0 "), "{told}");
    Ok(())
}
