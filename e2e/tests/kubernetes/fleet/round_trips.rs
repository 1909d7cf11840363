//! The requests to the API server between a new hostname and Envoy: its owner is recorded first, by
//! one write whose answer suffices, and nothing else is on the way.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{BACKEND, Cluster, service};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::probe::Probe;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::GATEWAY;

const SPACE: &str = "alice";
const LIMIT: Duration = Duration::from_secs(180);

fn route(name: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": SPACE},
        "spec": {"parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": name}],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

fn listener_set(name: &str, port: u16) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "ListenerSet", "metadata": {"name": name, "namespace": SPACE},
        "spec": {"parentRef": {"name": "edge"},
            "listeners": [{"name": "http", "port": port, "protocol": "HTTP", "hostname": host(name)}]}})
}

fn host(name: &str) -> String {
    format!("{name}.alice.example.org")
}

async fn served(address: SocketAddr, name: &str) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !Probe::http(address, &host(name))
        .send()
        .await
        .is_ok_and(|answer| answer.status == 200)
    {
        ensure!(Instant::now() < deadline, "{name} is not served");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_new_hostname_costs_one_round_trip_before_it_is_served() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    let echo = Echo::start_on("web", BACKEND).await?;
    let port = free_port()?;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let labels = json!({"gatewright.io/endpoints": "any"});
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": labels}}))
        .await?;
    for object in service(SPACE, "web", echo.address().port()) {
        server.put(object).await?;
    }
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": SPACE},
            "spec": {"gatewayClassName": "gatewright", "allowedListeners": {"namespaces": {"from": "Same"}},
                "listeners": [{"name": "http", "port": port, "protocol": "HTTP", "hostname": host("edge")}]}}))
        .await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    for name in ["first", "second"] {
        server.put(route(name)).await?;
    }
    server.put(listener_set("first", port)).await?;
    served(address, "first").await?;

    let before = cluster.quiet().await?;
    server.put(listener_set("second", port)).await?;
    served(address, "second").await?;
    cluster.quiet().await?;
    let writes = cluster.writes()?.split_off(before);
    let (records, others): (Vec<_>, Vec<_>) = writes
        .into_iter()
        .partition(|write| write.resource == "configmaps");
    ensure!(records.len() == 1, "one write of the record: {records:#?}");
    let record = records.first().context("there is one")?;
    ensure!(record.code < 300, "the record is written: {record:#?}");
    ensure!(
        others.iter().all(|write| write.came >= record.at),
        "something is written before its answer, {record:#?}: {others:#?}"
    );
    let objects: BTreeSet<_> = others
        .iter()
        .map(|write| (&write.resource, &write.object))
        .collect();
    ensure!(
        objects.len() == others.len() && others.len() <= 3,
        "the statuses of route, ListenerSet and Gateway, once each: {others:#?}"
    );
    Ok(())
}
