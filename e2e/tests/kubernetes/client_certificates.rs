//! Client certificates on a real API server: the roots come from ConfigMaps, and are replaced while
//! it runs.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::client_ca::ClientCa;
use e2e::cluster::{BACKEND, Cluster, condition, is_true, service, tls_secret};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::probe::Probe;
use serde_json::{Value, json};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const HOST: &str = "web.example.org";

fn roots(namespace: &str, pem: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "clients", "namespace": namespace},
        "data": {"ca.crt": pem}})
}

fn gateway(port: u16, roots_in: &str) -> Value {
    let reference =
        json!({"group": "", "kind": "ConfigMap", "name": "clients", "namespace": roots_in});
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "gatewright",
            "tls": {"frontend": {"default": {"validation": {"caCertificateRefs": [reference]}}}},
            "listeners": [{"name": "https", "protocol": "HTTPS", "port": port, "hostname": HOST,
                "tls": {"certificateRefs": [{"name": "cert"}]}}]}})
}

/// Waits until a client is admitted, or refused.
async fn until(client: &Probe, let_in: bool) -> Result<()> {
    let began = Instant::now();
    loop {
        let found = client.send().await;
        if found.as_ref().is_ok_and(|answer| answer.status == 200) == let_in {
            return Ok(());
        }
        ensure!(
            began.elapsed() < Duration::from_secs(120),
            "let in: {let_in} expected, found {found:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the listener has these reasons for its references.
async fn told(cluster: &Cluster, resolved: &str, accepted: &str) -> Result<()> {
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |gateway| {
            let listener = &gateway["status"]["listeners"][0];
            let reason =
                |kind| condition(listener, kind).map(|condition| condition["reason"].clone());
            reason("ResolvedRefs") == Some(resolved.into())
                && reason("Accepted") == Some(accepted.into())
        })
        .await
        .map(drop)
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn roots_of_clients_come_from_config_maps_and_are_replaced_live() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    let echo = Echo::start_on("web", BACKEND).await?;
    let port = free_port()?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (mut envoy, _tls) = cluster.envoy("envoy-a").await?;
    let one = ClientCa::new("one")?;
    let two = ClientCa::new("two")?;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    server.put(tls_secret("default", "cert", &[HOST])?).await?;
    for object in service("default", "web", echo.address().port()) {
        server.put(object).await?;
    }
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [HOST], "rules": rules}}))
        .await?;
    // Without the ConfigMap no client is admitted.
    server.put(gateway(port, "default")).await?;
    told(&cluster, "InvalidCACertificateRef", "NoValidCACertificate").await?;
    envoy.ready().await?;
    let to = || Probe::https(SocketAddr::from(([127, 0, 0, 1], port)), HOST);
    let by = |ca: &ClientCa| {
        ca.client()
            .map(|(certificate, key)| to().client(certificate, key))
    };
    let by_one = by(&one)?;
    let by_two = by(&two)?;
    until(&by_one, false).await?;

    server.put(roots("default", &one.pem)).await?;
    told(&cluster, "ResolvedRefs", "Accepted").await?;
    until(&by_one, true).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    ensure!(
        by_two.send().await.is_err() && to().send().await.is_err(),
        "a stranger is let in"
    );

    server
        .put(roots("default", &(one.pem.clone() + &two.pem)))
        .await?;
    until(&by_two, true).await?;
    until(&by_one, true).await?;
    server.put(roots("default", &two.pem)).await?;
    until(&by_one, false).await?;
    until(&by_two, true).await?;

    // Roots of another namespace are used while its ReferenceGrant permits it.
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "others"}}))
        .await?;
    server.put(roots("others", &one.pem)).await?;
    server.put(gateway(port, "others")).await?;
    told(&cluster, "RefNotPermitted", "NoValidCACertificate").await?;
    until(&by_one, false).await?;
    until(&by_two, false).await?;
    let grant = json!({"apiVersion": GATEWAY, "kind": "ReferenceGrant", "metadata": {"name": "ca", "namespace": "others"},
        "spec": {"from": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "default"}],
            "to": [{"group": "", "kind": "ConfigMap", "name": "clients"}]}});
    server.put(grant).await?;
    told(&cluster, "ResolvedRefs", "Accepted").await?;
    until(&by_one, true).await?;
    ensure!(by_two.send().await.is_err(), "a stranger is let in");
    let api = server.api(GATEWAY, "ReferenceGrant", "others").await?;
    api.delete("ca", &Default::default()).await?;
    told(&cluster, "RefNotPermitted", "NoValidCACertificate").await?;
    until(&by_one, false).await
}
