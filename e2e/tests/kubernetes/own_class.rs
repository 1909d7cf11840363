//! Our own GatewayClass on a real API server with a real Envoy: from `kubectl apply` to HTTPS, and
//! back to a status.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::cluster::{BACKEND, Cluster, NAMESPACE, condition, is_true, service, tls_secret};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::probe::Probe;
use serde_json::{Value, json};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

async fn site(cluster: &Cluster, port: u16, backend: SocketAddr) -> Result<()> {
    let server = &cluster.server;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    server
        .put(tls_secret("default", "cert", &["web.example.org"])?)
        .await?;
    for object in service("default", "web", backend.port()) {
        server.put(object).await?;
    }
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "listeners": [{
                "name": "https", "protocol": "HTTPS", "port": port, "hostname": "*.example.org",
                "tls": {"certificateRefs": [{"name": "cert"}]}}]}}))
        .await?;
    server.put(route("web", "web.example.org")).await?;
    Ok(())
}

fn route(name: &str, host: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "default"},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [host],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

fn parent<'a>(object: &'a Value, controller: &str) -> &'a Value {
    let parents = object["status"]["parents"].as_array().into_iter().flatten();
    parents
        .into_iter()
        .find(|parent| parent["controllerName"] == controller)
        .unwrap_or(&Value::Null)
}

const US: &str = "gatewright.io/gateway-controller";

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn from_apply_to_https_and_a_truthful_status() -> Result<()> {
    let cluster = Cluster::start().await?;
    let echo = Echo::start_on("web", BACKEND).await?;
    let port = free_port()?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (mut envoy, tls) = cluster.envoy("envoy-a").await?;
    site(&cluster, port, echo.address()).await?;

    // The whole chain has its statuses.
    let class = cluster
        .until(GATEWAY, "GatewayClass", "", "gatewright", |o| {
            is_true(&o["status"], "Accepted")
        })
        .await?;
    assert_eq!(
        condition(&class["status"], "Accepted").context("it has one")?["observedGeneration"],
        1
    );
    let gateway = cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    let programmed = condition(&gateway["status"], "Programmed").context("it has one")?;
    assert_eq!(programmed["message"], "acknowledged by 1 of 1 Envoys");
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            o["status"]["listeners"][0]["attachedRoutes"] == 1
                && is_true(&o["status"]["listeners"][0], "Programmed")
        })
        .await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "default", "web", |o| {
            is_true(parent(o, US), "Accepted")
        })
        .await?;
    envoy.ready().await?;

    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let get = async || {
        anyhow::Ok(
            Probe::https(address, "web.example.org")
                .send()
                .await?
                .status,
        )
    };
    // A status waits a moment for Envoys, so that attachment may be reported before they have it.
    until("the route is served", async || Ok(get().await? == 200)).await?;

    // Entries of others in our statuses are kept, and changes of our entries are reverted.
    let api = cluster.server.api(GATEWAY, "HTTPRoute", "default").await?;
    let foreign = json!({"controllerName": "example.org/other", "parentRef": {"name": "edge"}, "conditions": [{
        "type": "Accepted", "status": "False", "reason": "No", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let patch = json!({"status": {"parents": [foreign]}});
    api.patch_status("web", &Default::default(), &kube::api::Patch::Merge(&patch))
        .await?;
    let mended = cluster
        .until(GATEWAY, "HTTPRoute", "default", "web", |o| {
            is_true(parent(o, US), "Accepted")
        })
        .await?;
    assert!(
        condition(parent(&mended, "example.org/other"), "Accepted").is_some(),
        "{mended:#}"
    );

    // A route with a missing backend reports it, and forwards nowhere else.
    let mut broken = route("broken", "broken.example.org");
    broken["spec"]["rules"][0]["backendRefs"][0]["name"] = json!("nowhere");
    cluster.server.put(broken).await?;
    let told = cluster
        .until(GATEWAY, "HTTPRoute", "default", "broken", |o| {
            condition(parent(o, US), "ResolvedRefs").is_some()
        })
        .await?;
    assert_eq!(
        condition(parent(&told, US), "ResolvedRefs").context("it has one")?["reason"],
        "BackendNotFound"
    );

    // A Gateway of another class is ignored, and so is a Secret without references.
    cluster
        .server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "theirs", "namespace": "default"},
            "spec": {"gatewayClassName": "cilium", "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}))
        .await?;
    cluster
        .server
        .put(tls_secret("default", "private", &["x.example.org"])?)
        .await?;

    // The certificate is replaced: the new one is served.
    let serial = async || {
        let peer = Probe::https(address, "web.example.org")
            .send()
            .await?
            .peer
            .context("TLS has a peer")?;
        anyhow::Ok(peer.serial)
    };
    let old = serial().await?;
    cluster
        .server
        .put(tls_secret("default", "cert", &["web.example.org"])?)
        .await?;
    until("the new certificate is served", async || {
        Ok(serial().await? != old)
    })
    .await?;

    // In the steady state nothing is written.
    let mut quiet = cluster.quiet().await?;

    // The control plane is killed; Envoy goes on serving. The control plane restarts, resends
    // nothing and writes nothing.
    let updates = envoy.stat("cluster_manager.cluster_modified").await?
        + envoy.stat("listener_manager.listener_modified").await?;
    for attempt in 0..5 {
        drop(controller);
        assert_eq!(get().await?, 200);
        let began = Instant::now();
        controller = cluster.controller("one")?;
        controller.line("xDS at").await?;
        until("Envoy is connected again", async || {
            Ok(envoy.stat("control_plane.connected_state").await? == 1)
        })
        .await?;
        // Envoy's retries back off. One that is missing for ten seconds is reported as
        // disconnected.
        if began.elapsed() < Duration::from_secs(8) || attempt == 4 {
            break;
        }
        quiet = cluster.quiet().await?;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(get().await?, 200);
    assert_eq!(cluster.writes()?[quiet..], [], "a restart writes nothing");
    let after = envoy.stat("cluster_manager.cluster_modified").await?
        + envoy.stat("listener_manager.listener_modified").await?;
    assert_eq!(after, updates, "a restart changes nothing");

    // Missing keys for Envoy are made again, and Envoy loads them without a restart.
    let before = envoy.admin("/certs").await?;
    cluster.forget_keys().await?;
    controller
        .line("secret gatewright-system/gatewright-envoy is new")
        .await?;
    cluster.bring_keys(tls.path()).await?;
    until("Envoy takes its new keys", async || {
        Ok(envoy.admin("/certs").await? != before)
    })
    .await?;
    drop(controller);
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    until("Envoy is connected with them", async || {
        Ok(envoy.stat("control_plane.connected_state").await? == 1)
    })
    .await?;

    // A deleted route is not served any more.
    api.delete("web", &Default::default()).await?;
    until("404", async || Ok(get().await? == 404)).await?;

    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    let read: Vec<String> = cluster
        .server
        .requests()?
        .into_iter()
        .filter(|r| r.user == e2e::cluster::ACCOUNT && r.resource == "secrets" && r.verb == "get")
        .map(|r| r.object)
        .filter(|object| !object.starts_with(NAMESPACE))
        .collect();
    assert!(
        read.iter().all(|object| object == "default/cert"),
        "only what is referred to is read: {read:?}"
    );
    Ok(())
}

async fn until(what: &str, good: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if good().await? {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "not within two minutes: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
