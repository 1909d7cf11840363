//! A site for policies about bodies: a host with rules, one without a policy, and one of
//! WebSockets, on a port for HTTP and one for HTTPS.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use e2e::echo::Echo;
use e2e::probe::{Answer, Probe};
use e2e::websocket::WebSocketServer;
use e2e_inside::world::{World, class, edge, edge_route, free_port, gatewright, secret, service};
use gatewright_core::translate::Change;
use serde_json::{Value, json};

pub(super) const HOST: &str = "app.example.org";
pub(super) const OTHER: &str = "other.example.org";
pub(super) const SOCKET: &str = "ws.example.org";

/// The site, with a backend whose answers are JSON.
pub(super) struct BodySite {
    pub(super) http: SocketAddr,
    pub(super) https: SocketAddr,
    pub(super) world: World,
    pub(super) web: Echo,
    _socket: WebSocketServer,
}

/// The rule that forwards all other paths.
pub(super) fn forward() -> Value {
    json!({"backendRefs": [{"name": "web", "port": 80}]})
}

/// A TrafficPolicy of a route with a field, by the name of the route.
pub(super) fn policy(route: &str, field: &str, value: Value) -> Change {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": route});
    let mut spec = json!({"targetRefs": [target]});
    spec[field] = value;
    let name = format!("{route}-{}", field.to_lowercase());
    gatewright("TrafficPolicy", &name, spec)
}

impl BodySite {
    /// Starts it with the rules of the route `app`, and further objects. The route of WebSockets is
    /// `ws`.
    pub(super) async fn start(rules: Value, objects: Vec<Change>) -> Result<Self> {
        let [http, https] = [free_port()?, free_port()?];
        let web = Echo::start("web").await?;
        let socket = WebSocketServer::start(None).await?;
        let listeners = json!([{"name": "http", "port": http, "protocol": "HTTP"},
            {"name": "https", "port": https, "protocol": "HTTPS", "hostname": "*.example.org",
                "tls": {"certificateRefs": [{"name": "app"}]}}]);
        let to_socket = json!([{"backendRefs": [{"name": "ws", "port": 80}]}]);
        let mut changes = vec![
            class(),
            secret("app", "*.example.org")?,
            edge(listeners),
            edge_route("app", HOST, rules),
            edge_route("other", OTHER, json!([forward()])),
            edge_route("ws", SOCKET, to_socket),
        ];
        changes.extend(objects);
        changes.extend(service("web", web.address()));
        changes.extend(service("ws", socket.address()));
        let [http, https] = [http, https].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Ok(Self {
            http,
            https,
            world: World::start(changes).await?,
            web,
            _socket: socket,
        })
    }

    /// The same request on plain HTTP, and over TLS by both versions of HTTP.
    pub(super) fn each(&self, host: &str, path: &str) -> [Probe; 3] {
        [
            Probe::http(self.http, host),
            Probe::https(self.https, host).alpn(&["http/1.1"]),
            Probe::https(self.https, host).alpn(&["h2"]),
        ]
        .map(|probe| probe.path(path))
    }

    /// Sends a request.
    pub(super) async fn send(&self, probe: &Probe) -> Result<Answer> {
        let answer = probe.send().await;
        answer.with_context(|| self.world.envoy.log())
    }
}
