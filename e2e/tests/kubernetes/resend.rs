//! A replaced control plane resends no resource, of no type, including certificates and routes that
//! Envoy loaded on demand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::cluster::{BACKEND, Cluster, is_true, service, tls_secret};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use e2e::probe::Probe;
use serde_json::json;
use tokio::time::{Instant, sleep};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const LIMIT: Duration = Duration::from_secs(180);
/// The types that an Envoy of this site subscribes to.
const TYPES: [&str; 6] = ["cds", "eds", "lds", "rds", "srds", "sds"];

/// Returns a metric of a controller by type of resource.
async fn by_type(controller: &mut Gatewright, metric: &str) -> Result<BTreeMap<String, u64>> {
    let line = controller.line("probes and metrics at http://").await?;
    let (_, address) = line.rsplit_once("http://").context("an address")?;
    let address: SocketAddr = address.trim().parse()?;
    let answer = Probe::http(address, "metrics")
        .path("/metrics")
        .send()
        .await?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let value = |kind: &str| {
        let label = format!("{metric}{{type=\"{kind}\"}} ");
        let line = text
            .lines()
            .find(|line| line.contains(&label))
            .with_context(|| format!("no {label} in\n{text}"))?;
        Ok((
            kind.to_owned(),
            line.rsplit(' ').next().context("a value")?.parse()?,
        ))
    };
    TYPES.into_iter().map(value).collect()
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_new_control_plane_sends_nothing_again_of_any_type() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    let echo = Echo::start_on("web", BACKEND).await?;
    let port = free_port()?;
    let mut first = cluster.controller("one")?;
    first.line("xDS at").await?;
    let (mut envoy, _tls) = cluster.envoy("envoy-a").await?;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let hosts = ["exact.example.org", "a.wild.example.org"];
    server
        .put(tls_secret(
            "default",
            "cert",
            &["exact.example.org", "*.wild.example.org"],
        )?)
        .await?;
    for object in service("default", "web", echo.address().port()) {
        server.put(object).await?;
    }
    // An exact listener has an on-demand certificate and a scope, a wildcard listener a route
    // configuration.
    let listener = |name: &str, host: &str| {
        json!({"name": name, "protocol": "HTTPS", "port": port, "hostname": host,
            "tls": {"certificateRefs": [{"name": "cert"}]}})
    };
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "listeners":
                [listener("exact", "exact.example.org"), listener("wild", "*.wild.example.org")]}}))
        .await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": hosts,
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    envoy.ready().await?;
    let served = async |host: &str| {
        let to = Probe::https(SocketAddr::from(([127, 0, 0, 1], port)), host);
        let deadline = Instant::now() + LIMIT;
        while !to.send().await.is_ok_and(|answer| answer.status == 200) {
            assert!(Instant::now() < deadline, "{host} is not served");
            sleep(Duration::from_millis(50)).await;
        }
    };
    for host in hosts {
        served(host).await;
    }
    cluster.quiet().await?;
    let sent = by_type(&mut first, "xds_push_bytes_total").await?;
    assert!(
        sent.values().all(|bytes| *bytes > 0),
        "of every type something was sent: {sent:?}"
    );
    let asked = by_type(&mut first, "xds_subscribed_names").await?;
    let updates = async || -> Result<Vec<u64>> {
        let names = [
            "cluster_manager.cds.update_success",
            "listener_manager.lds.update_success",
        ];
        let mut all = Vec::new();
        for name in names {
            all.push(envoy.stat(name).await?);
        }
        Ok(all)
    };
    let before = updates().await?;

    drop(first);
    let mut second = cluster.controller("two")?;
    second.line("xDS at").await?;
    let deadline = Instant::now() + LIMIT;
    while by_type(&mut second, "xds_subscribed_names").await? != asked {
        assert!(
            Instant::now() < deadline,
            "Envoy does not ask for what it has"
        );
        sleep(Duration::from_millis(50)).await;
    }
    // It serves its hosts, and accepts the next change.
    for host in hosts {
        served(host).await;
    }
    cluster.quiet().await?;
    let sent = by_type(&mut second, "xds_push_bytes_total").await?;
    assert!(
        sent.values().all(|bytes| *bytes == 0),
        "something was sent again: {sent:?}"
    );
    assert_eq!(updates().await?, before, "Envoy took nothing");
    server
        .api(GATEWAY, "HTTPRoute", "default")
        .await?
        .delete("web", &Default::default())
        .await?;
    let to = Probe::https(SocketAddr::from(([127, 0, 0, 1], port)), hosts[1]);
    let deadline = Instant::now() + LIMIT;
    while to.send().await?.status != 404 {
        assert!(Instant::now() < deadline, "a change does not reach Envoy");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
