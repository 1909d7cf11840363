//! The statistics that a real Envoy keeps of each Service: those that somebody reads.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e::tls_backend::{TestRoot, TlsBackend};
use e2e_inside::world::{World, api, class, edge, edge_route, free_port, object, service};
use gatewright_core::translate::Change;
use gatewright_envoy::{ShownStatistics, Statistics, StatisticsReader, TrafficMetrics};
use serde_json::json;

const HOST: &str = "app.example.org";

/// Those of every Service, from its first request on.
const OF_ALL: &[&str] = &[
    "lb_healthy_panic",
    "membership_healthy",
    "membership_total",
    "upstream_cx_active",
    "upstream_cx_connect_fail",
    "upstream_cx_connect_timeout",
    "upstream_cx_none_healthy",
    "upstream_cx_overflow",
    "upstream_cx_rx_bytes_total",
    "upstream_cx_total",
    "upstream_cx_tx_bytes_total",
    "upstream_rq_2xx",
    "upstream_rq_active",
    "upstream_rq_active_overflow",
    "upstream_rq_pending_overflow",
    "upstream_rq_per_try_timeout",
    "upstream_rq_retry",
    "upstream_rq_retry_overflow",
    "upstream_rq_rx_reset",
    "upstream_rq_timeout",
    "upstream_rq_total",
];

/// Those that a request with an error adds, and health checks.
const OF_CHECKED: &[&str] = &[
    "health_check.attempt",
    "health_check.degraded",
    "health_check.failure",
    "health_check.healthy",
    "health_check.network_failure",
    "health_check.passive_failure",
    "health_check.success",
    "health_check.verify_cluster",
    "outlier_detection.ejections_active",
    "outlier_detection.ejections_enforced_total",
    "outlier_detection.ejections_total",
    "upstream_rq_5xx",
];

/// Those that TLS adds.
const OF_TLS: &[&str] = &[
    "ssl.connection_error",
    "ssl.fail_verify_cert_hash",
    "ssl.fail_verify_error",
    "ssl.fail_verify_no_cert",
    "ssl.fail_verify_san",
    "ssl.handshake",
];

/// A Gateway whose requests go to `web`, which is checked, and below `/vault` to `vault` over TLS.
fn objects(port: u16, web: SocketAddr, vault: SocketAddr, root: &TestRoot) -> Vec<Change> {
    let listeners = json!([{"name": "http", "port": port, "protocol": "HTTP"}]);
    let rules = json!([
        {"matches": [{"path": {"value": "/vault"}}], "backendRefs": [{"name": "vault", "port": 80}]},
        {"backendRefs": [{"name": "web", "port": 80}]},
    ]);
    let checks = json!({"active": {"type": "TCP"}, "passive": {"consecutive5XxErrors": 5}});
    let validation = json!({"hostname": "vault.example.org",
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]});
    let mut all = vec![
        class(),
        edge(listeners),
        edge_route("app", HOST, rules),
        api(
            "BackendTLSPolicy",
            "vault",
            json!({"targetRefs": [{"group": "", "kind": "Service", "name": "vault"}], "validation": validation}),
        ),
        object(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "ca"},
            "data": {"ca.crt": root.pem()}}),
        ),
        object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
            "metadata": {"namespace": "default", "name": "web"},
            "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": "web"}], "healthCheck": checks}}),
        ),
    ];
    all.extend(service("web", web));
    all.extend(service("vault", vault));
    all
}

/// The statistics of a Service, without its name.
async fn kept(world: &World, cluster: &str) -> Result<BTreeSet<String>> {
    let all = world.envoy.admin("/stats").await?;
    let prefix = format!("cluster.{cluster}.");
    Ok(all
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix)?.split_once(": "))
        .map(|(name, _)| name.to_owned())
        .collect())
}

fn names(parts: &[&[&str]]) -> BTreeSet<String> {
    parts.concat().into_iter().map(str::to_owned).collect()
}

/// Asks each backend, and returns what Envoy keeps of `web` and of `vault`.
async fn site(shown: ShownStatistics) -> Result<[BTreeSet<String>; 2]> {
    let root = TestRoot::new("root")?;
    let vault = TlsBackend::start(&root.issue("vault.example.org", None)?, None).await?;
    let web = Echo::start("web").await?;
    let port = free_port()?;
    let statistics = Statistics {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)),
        shown,
    };
    let world = World::start_counting(
        objects(port, web.address(), vault.address(), &root),
        TrafficMetrics::Off,
        Some(statistics),
    )
    .await?;
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    for (path, status) in [("/status/200", 200), ("/status/503", 503), ("/vault", 200)] {
        let answer = Probe::http(at, HOST).path(path).send().await?;
        ensure!(answer.status == status, "{path}: {}", answer.status);
    }
    Ok([
        kept(&world, "default/web_80").await?,
        kept(&world, "default/vault_80").await?,
    ])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn statistics_of_a_service_are_those_that_somebody_reads() -> Result<()> {
    let [web, vault] = site(ShownStatistics::Process).await?;
    assert_eq!(web, names(&[OF_ALL, OF_CHECKED]), "of a checked Service");
    assert_eq!(vault, names(&[OF_ALL, OF_TLS]), "of one with TLS");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn times_of_a_service_are_kept_for_the_reader_of_services() -> Result<()> {
    let reader = StatisticsReader {
        name: "prometheus".to_owned(),
        sha1: "qUqP5cyxm6YcTAhz05Hph5gvu9M=".to_owned(),
    };
    let [_, vault] = site(ShownStatistics::Services(reader)).await?;
    assert_eq!(
        vault,
        names(&[OF_ALL, OF_TLS, &["upstream_rq_time"]]),
        "with times"
    );
    Ok(())
}
