//! The PROXY protocol to a backend: an HAProxy that accepts nothing without it.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use e2e::haproxy::Accepting;
use e2e::probe::Probe;
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{World, api, free_port, service};
use gatewright_core::translate::Change;
use serde_json::json;
use tokio::time::Instant;

use super::{HOST, from, gateway, no_policy, policy, policy_of, tcp_route, to};

/// A Gateway with a listener for each kind of route, and these routes to Service `web`.
fn everything(http: u16, tcp: u16, tls: u16) -> Vec<Change> {
    let listeners = json!([{"name": "http", "port": http, "protocol": "HTTP"},
        {"name": "tcp", "port": tcp, "protocol": "TCP"},
        {"name": "tls", "port": tls, "protocol": "TLS", "hostname": HOST, "tls": {"mode": "Passthrough"}}]);
    let mut changes = gateway(&listeners);
    changes.extend([
        route("HTTPRoute", "http", "web"),
        tcp_route("web"),
        route("TLSRoute", "tls", "secure"),
    ]);
    changes
}

/// The route of the host at a listener to a Service.
fn route(kind: &str, section: &str, service: &str) -> Change {
    let parents = json!([{"name": "edge", "sectionName": section}]);
    let rules = json!([{"backendRefs": [{"name": service, "port": 80}]}]);
    let spec = json!({"parentRefs": parents, "hostnames": [HOST], "rules": rules});
    api(kind, section, spec)
}

fn header(version: &str) -> Vec<Change> {
    let spec = json!({"proxyProtocol": {"version": version}});
    vec![policy(spec.clone()), policy_of("secure", spec)]
}

/// Waits until clients from both addresses are known by them.
async fn until_known(port: u16, world: &World) -> Result<()> {
    let clients = [Ipv4Addr::new(127, 0, 8, 1), Ipv4Addr::new(127, 0, 8, 2)];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut known = Vec::new();
        for client in clients {
            known.push(from(client, port).await.unwrap_or_default());
        }
        if known == clients.map(|client| client.to_string()) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{known:?}\n{}",
            world.envoy.log()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and HAProxy"]
async fn a_backend_is_told_the_client_by_the_proxy_protocol() -> Result<()> {
    let (http, tcp, tls) = (free_port()?, free_port()?, free_port()?);
    let haproxy = Accepting::start(HOST).await?;
    let mut changes = everything(http, tcp, tls);
    changes.extend(service("web", haproxy.plain()));
    changes.extend(service("secure", haproxy.tls()));
    let world = World::start(changes).await?;
    let answer = to(http, "/").send().await?;
    ensure!(answer.status == 503, "answered {}", answer.status);

    let secure = Probe::https((Ipv4Addr::LOCALHOST, tls).into(), HOST);
    ensure!(
        secure.send().await.is_err(),
        "no connection without a header"
    );
    for version in ["V1", "V2"] {
        world.settle(header(version)).await?;
        until_known(http, &world).await?;
        until_known(tcp, &world).await?;
        let deadline = Instant::now() + PATIENCE;
        let answer = loop {
            match secure.send().await {
                Ok(answer) => break answer,
                Err(error) => ensure!(Instant::now() < deadline, "{version}: {error}"),
            }
        };
        ensure!(answer.status == 200, "{version}: {}", answer.status);
        ensure!(answer.body == "127.0.0.1", "{version}: {:?}", answer.body);
    }
    world.settle(vec![no_policy()]).await?;
    let deadline = Instant::now() + PATIENCE;
    while to(http, "/").send().await.context("an answer")?.status != 503 {
        ensure!(Instant::now() < deadline, "{}", world.envoy.log());
    }
    Ok(())
}
