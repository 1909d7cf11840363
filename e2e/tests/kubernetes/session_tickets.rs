//! Session tickets of several replicas: all their Envoys have the same keys.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use e2e::cluster::{Cluster, NAMESPACE, condition, tls_secret};
use e2e::port::free_port;
use e2e::tenants::until;
use e2e::tls_sessions::{Client, VERSIONS};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use serde_json::json;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const HOST: &str = "a.example.org";

/// Of so many connections some come to each of two Envoys at one port, whatever the kernel chooses.
const CONNECTIONS: usize = 16;

async fn until_told(cluster: &Cluster, text: &str) -> Result<()> {
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            condition(&o["status"], "Programmed").is_some_and(|c| c["message"] == text)
        })
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn every_envoy_resumes_the_sessions_of_the_others_also_after_a_restart() -> Result<()> {
    let cluster = Cluster::start().await?;
    let class = include_str!("../../../deploy/gatewayclass.yaml");
    cluster.server.apply(class).await?;
    let mut one = cluster.controller("one")?;
    one.line("xDS at").await?;
    let (mut two, xds) = cluster.replica_with_xds("two")?;
    two.line("xDS at").await?;
    let (a, _tls_a) = cluster.envoy("envoy-a").await?;
    let (b, _tls_b) = cluster.envoy_of("envoy-b", xds).await?;
    let port = free_port()?;
    let tls = json!({"certificateRefs": [{"name": "cert"}],
        "options": {"gatewright.io/session-tickets": "Enabled"}});
    let listener =
        json!({"name": "a", "protocol": "HTTPS", "port": port, "hostname": HOST, "tls": tls});
    for object in [
        tls_secret("default", "cert", &[HOST])?,
        json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "listeners": [listener]}}),
    ] {
        cluster.server.put(object).await?;
    }
    until_told(&cluster, "acknowledged by 2 of 2 Envoys").await?;
    let client = Client::of(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let mut sessions = Vec::new();
    for version in VERSIONS {
        let (_, session) = client.connect(HOST, version, None)?;
        sessions.push((version, session));
    }
    for (version, session) in &sessions {
        for _ in 0..CONNECTIONS {
            ensure!(client.accepts(HOST, version, session)?, "{version}");
        }
    }

    // The lease holder ends, and a new Envoy is told the keys by the other replica.
    drop((one, a, b));
    two.line("holding the lease").await?;
    let (_c, _tls_c) = cluster.envoy_of("envoy-c", xds).await?;
    until("the new Envoy serves", async || {
        Ok(client.connect(HOST, VERSIONS[0], None).is_ok())
    })
    .await?;
    for (version, session) in &sessions {
        let is_resumed = client.accepts(HOST, version, session)?;
        ensure!(is_resumed, "{version}, at a new Envoy");
    }

    let api: Api<Secret> = Api::namespaced(cluster.server.client(), NAMESPACE);
    let kept = api.get("gatewright-session-tickets").await?;
    ensure!(
        kept.type_.as_deref() == Some("gatewright.io/xds"),
        "its type keeps it out of the watch of certificates"
    );
    let data = kept.data.context("keys")?;
    ensure!(data.keys().eq(["keys.json"]), "{:?}", data.keys());
    ensure!(cluster.denied()?.is_empty(), "{:?}", cluster.denied()?);
    Ok(())
}
