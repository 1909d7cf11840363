//! Namespaces that one Gateway admits, by routes and by ListenerSets: the first owner of a hostname
//! keeps it, also over a restart, and its statuses do not mention the others.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{BACKEND, Cluster, NAMESPACE, is_true, service};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::probe::Probe;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{GATEWAY, told};

/// Time limit of a wait on a busy machine; no assertion depends on durations.
const LIMIT: Duration = Duration::from_secs(180);
const HERS: &str = "app.alice.example";
const SET: &str = "set.alice.example";

/// A namespace with a backend.
async fn tenant(cluster: &Cluster, name: &str) -> Result<Echo> {
    let echo = Echo::start_on(name, BACKEND).await?;
    cluster
        .server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .await?;
    for object in service(name, "web", echo.address().port()) {
        cluster.server.put(object).await?;
    }
    Ok(echo)
}

/// A route of a namespace that forwards a path to its backend.
fn route(namespace: &str, name: &str, parent: Value, hosts: &[&str], path: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [parent], "hostnames": hosts, "rules": [
            {"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web", "port": 80}]}]}})
}

fn listener_set(namespace: &str, port: u16, host: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "ListenerSet", "metadata": {"name": "set", "namespace": namespace},
        "spec": {"parentRef": {"name": "edge", "namespace": "infra"},
            "listeners": [{"name": "l", "protocol": "HTTP", "port": port, "hostname": host}]}})
}

/// Returns the reason of `Accepted` at a route's only parent.
fn accepted(route: &Value) -> String {
    told(&route["status"]["parents"][0], "Accepted").0
}

/// Returns the backend that answers with 200.
async fn answer(port: u16, host: &str, path: &str) -> Result<String> {
    let answer = Probe::http(SocketAddr::from(([127, 0, 0, 1], port)), host)
        .path(path)
        .send()
        .await?;
    ensure!(answer.status == 200, "{}", answer.status);
    let told: Value = serde_json::from_slice(&answer.body)?;
    Ok(told["name"]
        .as_str()
        .context("an echo names itself")?
        .to_owned())
}

async fn until_answered(port: u16, host: &str, backend: &str) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let found = answer(port, host, "/").await;
        if found.as_ref().is_ok_and(|found| found == backend) {
            return Ok(());
        }
        ensure!(
            Instant::now() < until,
            "{host} is not answered by {backend}: {found:?}"
        );
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn of_namespaces_that_a_gateway_admits_the_first_keeps_a_hostname() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let http = free_port()?;
    let other = free_port()?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "infra"}}))
        .await?;
    let listener = |name: &str, port: u16| {
        json!({"name": name, "protocol": "HTTP", "port": port, "hostname": "*.example",
            "allowedRoutes": {"namespaces": {"from": "All"}}})
    };
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "infra"},
            "spec": {"gatewayClassName": "gatewright", "listeners": [listener("http", http), listener("other", other)],
                "allowedListeners": {"namespaces": {"from": "All"}}}}))
        .await?;
    let _alice = tenant(&cluster, "alice").await?;
    let mallory = tenant(&cluster, "mallory").await?;
    let edge =
        |section: &str| json!({"name": "edge", "namespace": "infra", "sectionName": section});

    // Alice has a name by a route on one port, and one by a ListenerSet.
    server
        .put(route("alice", "web", edge("http"), &[HERS], "/"))
        .await?;
    server.put(listener_set("alice", http, SET)).await?;
    server
        .put(route(
            "alice",
            "of-set",
            json!({"kind": "ListenerSet", "name": "set"}),
            &[],
            "/",
        ))
        .await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "alice", "web", |o| {
            accepted(o) == "Accepted"
        })
        .await?;
    cluster
        .until(GATEWAY, "ListenerSet", "alice", "set", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    for host in [HERS, SET] {
        until_answered(http, host, "alice").await?;
    }

    // Mallory claims a path of each, on every port, and the name of her ListenerSet.
    for (name, section, host) in [
        ("a", "http", HERS),
        ("b", "other", HERS),
        ("c", "other", SET),
        ("d", "http", SET),
    ] {
        server
            .put(route(
                "mallory",
                name,
                edge(section),
                &[host],
                "/.well-known/acme-challenge",
            ))
            .await?;
        let lost = cluster
            .until(GATEWAY, "HTTPRoute", "mallory", name, |o| {
                accepted(o) == "HostnameConflict"
            })
            .await
            .context(name)?;
        ensure!(
            !lost["status"].to_string().contains("alice/"),
            "{:#}",
            lost["status"]
        );
    }
    server
        .put(route("mallory", "everything", edge("other"), &[], "/"))
        .await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "mallory", "everything", |o| {
            accepted(o) == "Accepted"
        })
        .await?;
    until_answered(other, "nobody.example", "mallory").await?;
    server.put(listener_set("mallory", other, SET)).await?;
    cluster
        .until(GATEWAY, "ListenerSet", "mallory", "set", |o| {
            told(&o["status"]["listeners"][0], "Accepted").0 == "HostnameConflict"
        })
        .await?;
    let check = async || -> Result<()> {
        let before = mallory.requests();
        for host in [HERS, SET] {
            for path in ["/", "/.well-known/acme-challenge/token"] {
                ensure!(answer(http, host, path).await? == "alice", "{host}{path}");
                ensure!(
                    answer(other, host, path).await.is_err(),
                    "{host}{path} is answered on another port"
                );
            }
        }
        ensure!(
            mallory.requests() == before,
            "mallory was asked for a name of alice's"
        );
        Ok(())
    };
    check().await?;

    // The record has it, also for the next holder of the Lease.
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), NAMESPACE);
    let all = maps
        .list(&ListParams::default().labels("gatewright.io/keeps=hostname-claims"))
        .await?
        .items;
    let lines: Vec<&String> = all
        .iter()
        .flat_map(|map| map.data.iter().flatten())
        .map(|(_, line)| line)
        .collect();
    for host in [HERS, SET] {
        let is_hers = |line: &&&String| {
            line.contains(host) && line.contains("listeners") && line.contains("\"alice\"")
        };
        ensure!(
            lines.iter().any(|line| is_hers(&line)),
            "{host}: {lines:#?}"
        );
    }
    drop(controller);
    server
        .put(route("mallory", "late", edge("http"), &[HERS], "/login"))
        .await?;
    let mut controller = cluster.controller("two")?;
    controller.line("xDS at").await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "mallory", "late", |o| {
            accepted(o) == "HostnameConflict"
        })
        .await?;
    check().await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
