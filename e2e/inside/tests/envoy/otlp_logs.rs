//! Access logs of a real Envoy that go to a collector, by OTLP.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::collector::Collector;
use e2e::echo::Echo;
use e2e::held::Held;
use e2e::probe::Probe;
use e2e::tls_backend::TestRoot;
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{World, api, class, free_port, object, service};
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::time::sleep;

const HOST: &str = "app.example.org";
/// Lines that the collector did not take, as Envoy counts them.
const DROPPED: &str = "access_logs.open_telemetry_access_log.logs_dropped";

/// A Gateway whose access log goes to the collector behind an address.
fn objects(port: u16, web: SocketAddr, collector: SocketAddr, log: Value) -> Vec<Change> {
    let reference = json!({"parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters", "name": "logged"}});
    let mut all = vec![
        class(),
        object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "default", "name": "logged"}, "spec": {"accessLog": log}}),
        ),
        api(
            "Gateway",
            "edge",
            json!({"gatewayClassName": "ours", "infrastructure": reference,
                "listeners": [{"name": "http", "port": port, "protocol": "HTTP"}]}),
        ),
        api(
            "HTTPRoute",
            "app",
            json!({"parentRefs": [{"name": "edge"}], "hostnames": [HOST],
                "rules": [{"matches": [{"path": {"value": "/ok"}}], "backendRefs": [{"name": "web", "port": 80}]}]}),
        ),
    ];
    all.extend(service("web", web));
    all.extend(service("collector", collector));
    all
}

fn sink() -> Value {
    json!({"type": "OpenTelemetry", "openTelemetry": {"service": "collector", "port": 80}})
}

fn probe(port: u16, path: &str) -> Probe {
    Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HOST).path(path)
}

/// Waits for the line of a request by its path.
async fn line(world: &World, path: &str) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(line) = world
            .access_log()
            .into_iter()
            .find(|line| line["path"] == path)
        {
            return Ok(line);
        }
        ensure!(Instant::now() < deadline, "no line of {path}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until Envoy has counted so many lost lines.
async fn dropped(world: &World, most: u64) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = world.envoy.stat(DROPPED).await?;
        if found >= most {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{found} lines lost of {most}: {}",
            world
                .envoy
                .admin("/stats?filter=collector|access_logs")
                .await?
        );
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_record_has_the_fields_of_the_line() -> Result<()> {
    let (port, web) = (free_port()?, Echo::start("web").await?);
    let collector = Collector::start().await?;
    let log = json!({"mode": "All", "sinks": [{"type": "Stdout"}, sink()],
        "requestHeaders": ["user-agent", "x-absent"], "query": "Keep"});
    let world = World::start(objects(port, web.address(), collector.address(), log)).await?;
    let forged = r#"curl","details":"forged"#;
    let asked = probe(port, "/ok?a=1").header("user-agent", forged);
    assert_eq!(asked.send().await?.status, 200, "{}", world.envoy.log());
    let line = line(&world, "/ok?a=1").await?;
    let record = collector.record("/ok?a=1").await?;
    for (field, value) in line.as_object().context("a line")? {
        if field == "time" || field == "request_headers" {
            continue;
        }
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        assert_eq!(record.attributes[field], text, "{field}: {record:#?}");
    }
    assert_eq!(
        record.attributes["request_headers"],
        json!({"user-agent": forged, "x-absent": "-"}),
        "an object, with a hyphen for what is absent"
    );
    assert!(record.time > 0, "{record:#?}");
    assert_eq!(
        record.resource,
        json!({"service.name": "gatewright", "gateway": "default/edge"})
    );
    assert_eq!(probe(port, "/none").send().await?.status, 404);
    let unmatched = collector.record("/none").await?;
    assert_eq!(unmatched.attributes["route"], "no-route", "{unmatched:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_policy_decides_about_the_certificate_of_the_collector() -> Result<()> {
    let (port, web) = (free_port()?, Echo::start("web").await?);
    let (root, other) = (TestRoot::new("root")?, TestRoot::new("other")?);
    let shown = root.issue("collector.example.org", None)?;
    let collector = Collector::start_tls(&shown).await?;
    let log = json!({"mode": "All", "sinks": [sink()]});
    let mut all = objects(port, web.address(), collector.address(), log);
    let targets = json!([{"group": "", "kind": "Service", "name": "collector"}]);
    let validation = json!({"hostname": "collector.example.org",
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]});
    all.extend([
        roots(&other),
        api(
            "BackendTLSPolicy",
            "collector",
            json!({"targetRefs": targets, "validation": validation}),
        ),
    ]);
    let world = World::start(all).await?;
    assert_eq!(probe(port, "/ok/refused").send().await?.status, 200);
    dropped(&world, 1).await?;
    world.settle(vec![roots(&root)]).await?;
    assert_eq!(probe(port, "/ok/taken").send().await?.status, 200);
    collector.record("/ok/taken").await?;
    let refused = collector
        .received()
        .logs
        .into_iter()
        .filter(|record| record.attributes["path"] == "/ok/refused");
    assert_eq!(
        refused.count(),
        0,
        "nothing goes to whom nobody vouches for"
    );
    Ok(())
}

fn roots(root: &TestRoot) -> Change {
    object(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "ca"},
        "data": {"ca.crt": root.pem()}}),
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_collector_that_is_not_reached_loses_lines_and_delays_no_request() -> Result<()> {
    let silent = Held::start().await?;
    let absent = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    for (name, at) in [("silent", silent.address()), ("absent", absent)] {
        let (port, web) = (free_port()?, Echo::start("web").await?);
        let log = json!({"mode": "All", "sinks": [sink()]});
        let world = World::start(objects(port, web.address(), at, log)).await?;
        let probe = probe(port, "/ok");
        let mut connection = probe.connect().await?;
        let mut slowest = Duration::ZERO;
        for _ in 0..2000 {
            let begun = Instant::now();
            let answer = connection.ask(&probe).await?;
            slowest = slowest.max(begun.elapsed());
            assert_eq!(answer.status, 200, "{name}");
        }
        // The timeout of a batch is five seconds, and the machine may be busy.
        assert!(slowest < Duration::from_secs(4), "{name}: {slowest:?}");
        dropped(&world, 2000).await?;
        let requests = "cluster.otlp.upstream_rq_active";
        assert_eq!(
            world.envoy.stat(requests).await?,
            0,
            "{name}: what is lost is not kept"
        );
    }
    assert!(silent.requests() > 0, "it was asked");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn prometheus_reads_how_many_lines_are_lost_and_no_name() -> Result<()> {
    let (port, web) = (free_port()?, Echo::start("web").await?);
    let absent = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let log = json!({"mode": "All", "sinks": [sink()]});
    let all = objects(port, web.address(), absent, log);
    let (world, statistics) = World::start_with_statistics(all).await?;
    for _ in 0..3 {
        assert_eq!(probe(port, "/ok").send().await?.status, 200);
    }
    dropped(&world, 3).await?;
    let asked = Probe::http(statistics, "envoy").path("/stats/prometheus");
    let answer = asked.send().await?;
    let text = String::from_utf8_lossy(&answer.body);
    for series in [
        "envoy_access_logs_open_telemetry_access_log_logs_dropped{} 3",
        "envoy_access_logs_open_telemetry_access_log_logs_written{} 0",
    ] {
        assert!(text.contains(series), "no {series} in\n{text}");
    }
    for name in ["collector", "default", "edge", "example.org"] {
        assert!(!text.contains(name), "{name} of a tenant is told:\n{text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_part_of_the_requests_has_a_line() -> Result<()> {
    let (port, web) = (free_port()?, Echo::start("web").await?);
    let log = json!({"mode": "All", "percent": 30});
    let world = World::start(objects(port, web.address(), web.address(), log)).await?;
    let probe = probe(port, "/ok");
    let mut connection = probe.connect().await?;
    for _ in 0..2000 {
        assert_eq!(connection.ask(&probe).await?.status, 200);
    }
    let last = connection.ask(&probe.clone().path("/last")).await?;
    assert_eq!(last.status, 404, "an error, which always has a line");
    line(&world, "/last").await?;
    let found = world
        .access_log()
        .iter()
        .filter(|l| l["path"] == "/ok")
        .count();
    // 600 are expected; the standard deviation is 20.5, and seven of them are 144.
    assert!((456..=744).contains(&found), "{found} lines of 2000");
    Ok(())
}
