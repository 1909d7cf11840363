//! Uploads to a rule with `retry` while one of two endpoints refuses connections, as in a rollout.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e_inside::world::{World, class, edge, edge_route, free_port, object, secret, service};
use gatewright_core::translate::Change;
use hyper::Method;
use serde_json::{Value, json};

const HOST: &str = "app.example.org";
/// So many requests that some reach the endpoint that refuses.
const REQUESTS: usize = 20;

/// An endpoint of Service `web` at which nobody listens.
fn absent() -> Result<Change> {
    Ok(object(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": "web-2", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "p", "port": free_port()?}], "endpoints": [{"addresses": ["127.0.0.1"]}]}),
    ))
}

fn rule(path: &str, retry: &Value) -> Value {
    json!({"matches": [{"path": {"value": path}}], "retry": retry,
        "backendRefs": [{"name": "web", "port": 80}]})
}

struct Site {
    http: SocketAddr,
    https: SocketAddr,
    world: World,
    _web: Echo,
}

impl Site {
    async fn start() -> Result<Self> {
        let [http, https] = [free_port()?, free_port()?];
        let web = Echo::start("web").await?;
        let listeners = json!([{"name": "http", "port": http, "protocol": "HTTP"},
            {"name": "https", "port": https, "protocol": "HTTPS", "hostname": HOST,
                "tls": {"certificateRefs": [{"name": "app"}]}}]);
        let rules = json!([
            rule("/", &json!({"attempts": 3})),
            rule("/status", &json!({"attempts": 1, "codes": [503]}))
        ]);
        let mut changes = vec![
            class(),
            secret("app", HOST)?,
            edge(listeners),
            edge_route("app", HOST, rules),
            absent()?,
        ];
        changes.extend(service("web", web.address()));
        let [http, https] = [http, https].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Ok(Self {
            http,
            https,
            world: World::start(changes).await?,
            _web: web,
        })
    }

    /// The statuses of uploads by each version of HTTP.
    async fn statuses(&self, path: &str, bytes: usize) -> Result<Vec<u16>> {
        let versions = [
            Probe::http(self.http, HOST),
            Probe::https(self.https, HOST).alpn(&["h2"]),
        ];
        let mut statuses = Vec::new();
        for probe in versions {
            let upload = probe
                .path(path)
                .method(Method::POST)
                .body(vec![b'x'; bytes]);
            for _ in 0..REQUESTS {
                let answer = upload.send().await;
                statuses.push(answer.with_context(|| self.world.envoy.log())?.status);
            }
        }
        Ok(statuses)
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_body_that_is_kept_goes_to_the_endpoint_that_listens() -> Result<()> {
    let site = Site::start().await?;
    for bytes in [1000, 33_000, 60_000] {
        let statuses = site.statuses("/", bytes).await?;
        let all_good = statuses.iter().all(|status| *status == 200);
        assert!(all_good, "{bytes} bytes: {statuses:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_body_that_is_longer_than_what_is_kept_is_answered_503() -> Result<()> {
    let site = Site::start().await?;
    let refused = site.statuses("/", 400_000).await?;
    let is_either = refused.iter().all(|status| [200, 503].contains(status));
    assert!(is_either, "of no endpoint that listens: {refused:?}");
    let early = site.statuses("/status/503", 400_000).await?;
    let is_early = early.iter().all(|status| *status == 503);
    assert!(is_early, "of the backend: {early:?}");
    Ok(())
}
