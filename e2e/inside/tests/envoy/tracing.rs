//! Traces of a real Envoy, by XTelemetryPolicy: one trace joins client, gateway and backend, and no
//! client decides how many there are.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::collector::{Collector, Span, Spans};
use e2e::echo::Echo;
use e2e::held::Held;
use e2e::probe::{Connection, Probe};
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{World, api, class, free_port, object, service};
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::time::sleep;

const HOST: &str = "app.example.org";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn gateway(name: &str, port: u16) -> Vec<Change> {
    vec![
        api(
            "Gateway",
            name,
            json!({"gatewayClassName": "ours", "listeners": [{"name": "http", "port": port, "protocol": "HTTP"}]}),
        ),
        api(
            "HTTPRoute",
            name,
            json!({"parentRefs": [{"name": name}], "hostnames": [HOST],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}),
        ),
    ]
}

/// The policy of Gateway `edge`.
fn policy(tracing: Value) -> Change {
    object(
        json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XTelemetryPolicy",
        "metadata": {"namespace": "default", "name": "traces"}, "spec": {"tracing": tracing,
            "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}]}}),
    )
}

/// Tracing with the collector, and further fields.
fn enabled(more: &Value) -> Value {
    let mut tracing =
        json!({"mode": "Enabled", "provider": {"backendRef": {"name": "collector", "port": 80}}});
    for (field, value) in more.as_object().into_iter().flatten() {
        tracing[field] = value.clone();
    }
    tracing
}

fn objects(port: u16, web: &Echo, collector: SocketAddr, tracing: &Value) -> Vec<Change> {
    let mut all = vec![class(), policy(enabled(tracing))];
    all.extend(gateway("edge", port));
    all.extend(service("web", web.address()));
    all.extend(service("collector", collector));
    all
}

fn probe(port: u16, path: &str) -> Probe {
    Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HOST).path(path)
}

/// The same as part of a trace of the client.
fn in_trace(port: u16, path: &str, is_sampled: bool) -> Probe {
    let parent = format!("00-{TRACE}-{PARENT}-{:02x}", u8::from(is_sampled));
    probe(port, path).header("traceparent", &parent)
}

/// Sends a request, and returns the header `traceparent` that the backend got.
async fn backends(connection: &mut Connection, probe: &Probe) -> Result<Option<String>> {
    let answer = connection.ask(probe).await?;
    ensure!(answer.status == 200, "{}", answer.status);
    let got: Value = serde_json::from_slice(&answer.body)?;
    let values = &got["headers"]["traceparent"];
    Ok(values[0].as_str().map(str::to_owned))
}

/// Waits for the span of a request by its path.
async fn span(collector: &Collector, path: &str) -> Result<Span> {
    let url = format!("http://{HOST}{path}");
    let received = collector
        .until(|received| {
            let mut spans = received.spans.iter();
            spans.any(|span| span.attributes["http.url"] == url)
        })
        .await?;
    let mut spans = received.spans.into_iter();
    let found = spans.find(|span| span.attributes["http.url"] == url);
    found.context("the span was there")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_trace_joins_client_gateway_and_backend() -> Result<()> {
    let (port, other) = (free_port()?, free_port()?);
    let (web, collector) = (Echo::start("web").await?, Collector::start().await?);
    let tracing = json!({"serviceName": "shop", "attributes": [
        {"name": "team", "sourceType": "Literal", "literalValue": "%REQ(x-user)%"},
        {"name": "user", "sourceType": "Header", "headerName": "X-User"},
        {"name": "status", "sourceType": "Attribute", "attributeKey": "http.response.status_code"}]});
    let mut all = objects(port, &web, collector.address(), &tracing);
    all.extend(gateway("other", other));
    let world = World::start(all).await?;
    let strange = in_trace(other, "/other", true);
    let mut connection = strange.connect().await?;
    let untouched = backends(&mut connection, &strange).await?;
    let written = format!("00-{TRACE}-{PARENT}-01");
    assert_eq!(
        untouched.as_deref(),
        Some(written.as_str()),
        "another Gateway forwards it as it is"
    );
    let asked = in_trace(port, "/joined?token=secret", true).header("x-user", "ann");
    let mut connection = asked.connect().await?;
    let sent = backends(&mut connection, &asked).await?;
    let span = span(&collector, "/joined").await?;
    assert_eq!(span.trace, TRACE, "{span:#?}");
    assert_eq!(span.parent, PARENT, "the client's: {span:#?}");
    assert_eq!(span.kind, 2, "of a server: {span:#?}");
    assert_eq!(
        sent,
        Some(format!("00-{TRACE}-{}-01", span.id)),
        "the backend's parent is the span of the gateway"
    );
    assert_eq!(span.name, "GET httproute/default/edge/0", "{span:#?}");
    assert_eq!(span.resource["service.name"], "shop", "{span:#?}");
    for (name, expected) in [
        ("team", "%REQ(x-user)%"),
        ("user", "ann"),
        ("status", "200"),
        ("gateway", "default/edge"),
        ("route", "httproute/default/edge/0"),
    ] {
        assert_eq!(span.attributes[name], expected, "{name}: {span:#?}");
    }
    let text = format!("{:?}", collector.received());
    assert!(
        !text.contains("secret"),
        "query strings are left out: {text}"
    );
    let gateways = collector.received().spans.into_iter();
    let strangers = gateways.filter(|span| span.attributes["gateway"] != "default/edge");
    assert_eq!(strangers.count(), 0, "other Gateways have no spans");
    world
        .settle(vec![policy(json!({"mode": "Disabled"}))])
        .await?;
    let asked = probe(port, "/off");
    let mut connection = asked.connect().await?;
    let sent = backends(&mut connection, &asked).await?;
    assert_eq!(sent, None, "it is off");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_collector_gets_the_headers_of_the_policy_and_nobody_else_sees_them() -> Result<()> {
    let port = free_port()?;
    let (web, collector) = (Echo::start("web").await?, Collector::start().await?);
    let headers = json!([
        {"name": "Authorization", "value": "Bearer hunter2=="},
        {"name": "authorization", "value": "Bearer ignored"},
        {"name": "X-Scope-OrgID", "value": "shop, team \"one\""}]);
    let provider = json!({"backendRef": {"name": "collector", "port": 80}, "headers": headers});
    let tracing = json!({"provider": provider});
    let _world = World::start(objects(port, &web, collector.address(), &tracing)).await?;
    let asked = probe(port, "/with-headers");
    let mut connection = asked.connect().await?;
    let answer = connection.ask(&asked).await?;
    let backend = String::from_utf8_lossy(&answer.body).into_owned();
    span(&collector, "/with-headers").await?;
    let received = collector.received();
    for (name, expected) in [
        ("authorization", "Bearer hunter2=="),
        ("x-scope-orgid", "shop, team \"one\""),
        ("content-type", "application/grpc"),
    ] {
        let found = received.headers.get(name).map(String::as_str);
        assert_eq!(found, Some(expected), "{name}: {:?}", received.headers);
    }
    assert!(
        !backend.contains("hunter2"),
        "the backend got it: {backend}"
    );
    let spans = format!("{:?}", received.spans);
    assert!(!spans.contains("hunter2"), "a span has it: {spans}");
    Ok(())
}

/// Waits until every worker has sent what it had.
async fn all_flushed(world: &World) -> Result<()> {
    let flushed = "tracing.opentelemetry.timer_flushed";
    let threads = world.envoy.stat("server.concurrency").await? + 1;
    let before = world.envoy.stat(flushed).await?;
    let deadline = Instant::now() + PATIENCE;
    while world.envoy.stat(flushed).await? < before + 2 * threads {
        ensure!(Instant::now() < deadline, "Envoy does not send its spans");
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Waits until every worker has sent what it had, and returns the number of spans.
async fn all_spans(world: &World, collector: &Collector) -> Result<usize> {
    all_flushed(world).await?;
    let sent = world.envoy.stat("tracing.opentelemetry.spans_sent").await?;
    let sent = usize::try_from(sent)?;
    let received = collector
        .until(|received| received.spans.len() >= sent)
        .await?;
    Ok(received.spans.len())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn no_client_forces_a_trace() -> Result<()> {
    let port = free_port()?;
    let (web, collector) = (Echo::start("web").await?, Collector::start().await?);
    let tracing = json!({"samplingRate": {"numerator": 25}});
    let world = World::start(objects(port, &web, collector.address(), &tracing)).await?;
    // The identifiers of trace and request are those that a sampler would take first.
    let forced = probe(port, "/forced")
        .header(
            "traceparent",
            "00-00000000000000000000000000000001-00f067aa0ba902b7-01",
        )
        .header("x-request-id", "00000000-0000-9000-8000-000000000000")
        .header("x-client-trace-id", "forced")
        .header("x-envoy-force-trace", "true")
        .header("x-b3-sampled", "1");
    let mut connection = forced.connect().await?;
    for _ in 0..2000 {
        let sent = backends(&mut connection, &forced).await?;
        let sent = sent.context("the trace goes on, sampled or not")?;
        assert!(
            sent.starts_with("00-00000000000000000000000000000001-"),
            "{sent}"
        );
    }
    let found = all_spans(&world, &collector).await?;
    // 500 are expected; the standard deviation is 19.4, and seven of them are 136.
    assert!((364..=636).contains(&found), "{found} spans of 2000");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_policy_may_believe_what_clients_sample() -> Result<()> {
    let port = free_port()?;
    let (web, collector) = (Echo::start("web").await?, Collector::start().await?);
    let tracing =
        json!({"samplingRate": {"numerator": 0}, "parentBasedSampling": {"mode": "Enabled"}});
    let world = World::start(objects(port, &web, collector.address(), &tracing)).await?;
    let none = probe(port, "/none");
    let mut connection = none.connect().await?;
    let sent = backends(&mut connection, &none).await?;
    assert!(
        sent.as_deref().is_some_and(|sent| sent.ends_with("-00")),
        "the backend is told that nobody samples: {sent:?}"
    );
    let unsampled = in_trace(port, "/unsampled", false);
    backends(&mut connection, &unsampled).await?;
    let sampled = in_trace(port, "/sampled", true);
    backends(&mut connection, &sampled).await?;
    span(&collector, "/sampled").await?;
    let found = all_spans(&world, &collector).await?;
    assert_eq!(found, 1, "{:#?}", collector.received().spans);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_collector_that_does_not_answer_delays_no_request() -> Result<()> {
    let port = free_port()?;
    let (web, silent) = (Echo::start("web").await?, Held::start().await?);
    let world = World::start(objects(port, &web, silent.address(), &json!({}))).await?;
    let asked = probe(port, "/");
    let mut connection = asked.connect().await?;
    let mut slowest = Duration::ZERO;
    for _ in 0..2000 {
        let begun = Instant::now();
        backends(&mut connection, &asked).await?;
        slowest = slowest.max(begun.elapsed());
    }
    // The timeout of a batch is five seconds, and the machine may be busy.
    assert!(slowest < Duration::from_secs(4), "{slowest:?}");
    assert!(silent.requests() > 0, "it was asked");
    drop(world);
    Ok(())
}

/// Batches that collectors did not take, as Prometheus reads them.
async fn lost_batches(statistics: SocketAddr) -> Result<u64> {
    let asked = Probe::http(statistics, "envoy").path("/stats/prometheus");
    let answer = asked.send().await?;
    let text = String::from_utf8_lossy(&answer.body);
    for name in ["collector", "default", "edge", "example.org"] {
        ensure!(!text.contains(name), "{name} of a tenant is told:\n{text}");
    }
    let mut lost = 0;
    for series in LOST {
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        lost += line.map_or(Ok(0), |value| value.trim().parse::<u64>())?;
    }
    Ok(lost)
}

/// What says that a collector did not take a batch, and that it did not answer.
const LOST: [&str; 2] = [
    r#"envoy_cluster_upstream_rq_xx{envoy_response_code_class="5",envoy_cluster_name="otlp"}"#,
    r#"envoy_cluster_upstream_rq_max_duration_reached{envoy_cluster_name="otlp"}"#,
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn spans_that_a_collector_does_not_take_are_counted() -> Result<()> {
    let port = free_port()?;
    let (web, collector) = (Echo::start("web").await?, Collector::start().await?);
    let silent = Held::start().await?;
    let absent = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let all = objects(port, &web, collector.address(), &json!({}));
    let (world, statistics) = World::start_with_statistics(all).await?;
    let asked = probe(port, "/");
    let mut connection = asked.connect().await?;
    for (name, at, spans, is_lost) in [
        ("taken", collector.address(), Spans::Taken, false),
        ("refused", collector.address(), Spans::Refused, true),
        ("rejected", collector.address(), Spans::Rejected(3), true),
        ("taken again", collector.address(), Spans::Taken, false),
        ("not reached", absent, Spans::Taken, true),
        ("not answered", silent.address(), Spans::Taken, true),
    ] {
        collector.answer(spans);
        world.settle(service("collector", at)).await?;
        let before = lost_batches(statistics).await?;
        let taken = collector.received().spans.len();
        for _ in 0..20 {
            backends(&mut connection, &asked).await?;
        }
        if is_lost {
            let deadline = Instant::now() + PATIENCE;
            while lost_batches(statistics).await? == before {
                ensure!(Instant::now() < deadline, "{name}: nothing is counted");
                sleep(Duration::from_millis(200)).await;
            }
            // What is left of the 20 does not belong to the next one.
            all_flushed(&world).await?;
        } else {
            collector
                .until(|received| received.spans.len() >= taken + 20)
                .await?;
            assert_eq!(lost_batches(statistics).await?, before, "{name}");
        }
    }
    Ok(())
}
