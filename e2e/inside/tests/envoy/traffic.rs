//! Numbers of requests by namespace, of a real Envoy: who is counted, what no client and no tenant
//! can write there, who reads them, and that every query of the dashboard finds them in a real
//! Prometheus.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine};
use e2e::deploy::folder;
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e::prometheus::{Prometheus, Target};
use e2e::usage::threads_time;
use e2e_inside::world::{World, api, class, free_port, object, secret};
use gatewright_core::translate::Change;
use gatewright_envoy::{ShownStatistics, Statistics, StatisticsReader, TrafficMetrics};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

const PATH: &str = "/stats/prometheus";
const NAME: &str = "prometheus";
const PASSWORD: &str = "abcdefghijklmnopqrstuvwxyz";
const LIMIT: Duration = Duration::from_secs(60);
/// The hosts of a route with many.
const HOSTS: u64 = 16;

fn reader() -> StatisticsReader {
    StatisticsReader {
        name: NAME.to_owned(),
        sha1: BASE64_STANDARD
            .encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, PASSWORD.as_bytes()).as_ref()),
    }
}

/// A Gateway whose hosts `blue` and `red` belong to the namespaces of these names, with a backend.
struct Site {
    world: World,
    statistics: SocketAddr,
    http: u16,
    https: u16,
    raw: u16,
    _web: Echo,
}

fn of(namespace: &str, kind: &str, name: &str, spec: Value) -> Change {
    object(
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind,
        "metadata": {"namespace": namespace, "name": name}, "spec": spec}),
    )
}

/// A route of a namespace to a Service of it, and this Service.
fn tenant(namespace: &str, address: SocketAddr) -> Vec<Change> {
    let route = json!({"parentRefs": [{"namespace": "default", "name": "edge.v1"}],
        "hostnames": [format!("{namespace}.example.org")],
        "rules": [{"matches": [{"path": {"value": "/status"}}, {"path": {"value": "/delay"}}], "backendRefs": [{"name": "web", "port": 80}]}]});
    let mut all = vec![of(namespace, "HTTPRoute", "web", route)];
    all.extend(backend(namespace, "web", address));
    all
}

/// A Service with one endpoint.
fn backend(namespace: &str, name: &str, address: SocketAddr) -> [Change; 2] {
    [
        object(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
            "spec": {"ports": [{"name": "p", "port": 80}]}}),
        ),
        object(
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": namespace, "name": name, "labels": {"kubernetes.io/service-name": name}},
            "ports": [{"name": "p", "port": address.port()}], "endpoints": [{"addresses": [address.ip().to_string()]}]}),
        ),
    ]
}

impl Site {
    async fn start(shown: ShownStatistics) -> Result<Self> {
        Self::start_with(TrafficMetrics::Namespaces, shown).await
    }

    async fn start_with(traffic: TrafficMetrics, shown: ShownStatistics) -> Result<Self> {
        let web = Echo::start("web").await?;
        let [http, https, raw] = [free_port()?, free_port()?, free_port()?];
        let all = json!({"namespaces": {"from": "All"}});
        let listeners = json!([
            {"name": "http", "port": http, "protocol": "HTTP", "hostname": "*.example.org", "allowedRoutes": all},
            {"name": "https", "port": https, "protocol": "HTTPS", "hostname": "*.example.org",
                "tls": {"certificateRefs": [{"name": "all"}]}, "allowedRoutes": all},
            {"name": "raw", "port": raw, "protocol": "TCP"},
        ]);
        let mut objects = vec![
            class(),
            secret("all", "*.example.org")?,
            api(
                "Gateway",
                "edge.v1",
                json!({"gatewayClassName": "ours", "listeners": listeners}),
            ),
        ];
        objects.extend(tenant("blue", web.address()));
        objects.extend(tenant("red", web.address()));
        let statistics = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let port = Statistics {
            address: statistics,
            shown,
        };
        let world = World::start_counting(objects, traffic, Some(port)).await?;
        Ok(Self {
            world,
            statistics,
            http,
            https,
            raw,
            _web: web,
        })
    }

    fn plain(&self, host: &str, path: &str) -> Probe {
        Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, self.http)), host).path(path)
    }

    fn over_tls(&self, host: &str, path: &str) -> Probe {
        Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, self.https)), host)
            .alpn(&["h2"])
            .path(path)
    }

    /// The statistics that the reader gets.
    async fn told(&self) -> Result<String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let (status, text) = self.ask(Some(PASSWORD)).await?;
            if status == 200 {
                return Ok(text);
            }
            // The main thread, which answers, may still take in many hosts.
            ensure!(
                status == 504 && Instant::now() < deadline,
                "{status}: {text}"
            );
        }
    }

    async fn ask(&self, password: Option<&str>) -> Result<(u16, String)> {
        let mut probe = Probe::http(self.statistics, "envoy").path(PATH);
        if let Some(password) = password {
            let user = BASE64_STANDARD.encode(format!("{NAME}:{password}"));
            probe = probe.header("authorization", &format!("Basic {user}"));
        }
        let answer = probe.send().await?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        Ok((answer.status, text))
    }

    /// Waits until Envoy has added up the times of so many requests, every five seconds, and
    /// returns what the port tells.
    async fn with_times(&self, tenant: &str, count: u32) -> Result<String> {
        let name = "envoy_gatewright_request_milliseconds_count";
        let deadline = Instant::now() + LIMIT;
        loop {
            let text = self.world.envoy.admin(PATH).await?;
            if value(&text, name, &[("tenant", tenant)]) == Some(f64::from(count)) {
                return self.told().await;
            }
            ensure!(Instant::now() < deadline, "{count} times in\n{text}");
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until these requests are counted: loggers run after the response.
    async fn counted(&self, tenant: &str, class: &str, count: u64) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        let name = format!("gatewright.requests.tenant.{tenant}.class.{class}.route.");
        loop {
            let now = self.world.envoy.stat(&name).await?;
            if now == count {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{name} is {now} in place of {count}:\n{}",
                self.world.envoy.admin("/stats?filter=^gatewright").await?
            );
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The value of the series of a name with exactly these labels, beside that of no route: an empty
/// label is as none.
fn value(text: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let wanted: BTreeMap<&str, &str> = labels.iter().copied().collect();
    text.lines().find_map(|line| {
        let (selector, value) = line.rsplit_once(' ')?;
        let inside = selector.strip_prefix(name)?.strip_prefix('{')?;
        let found: BTreeMap<&str, &str> = inside
            .strip_suffix('}')?
            .split(',')
            .filter_map(|label| label.split_once('='))
            .map(|(label, value)| (label, value.trim_matches('"')))
            .filter(|label| *label != ("route", ""))
            .collect();
        (found == wanted).then(|| value.parse().ok())?
    })
}

/// The client goes before the backend answers, or in the middle of its own header.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn requests_whose_client_went_are_counted_in_class_0() -> Result<()> {
    let site = Site::start(ShownStatistics::Traffic(reader())).await?;
    for (request, tenant) in [
        (
            "GET /delay/60000 HTTP/1.1\r\nhost: blue.example.org\r\n\r\n",
            "blue",
        ),
        ("GET /delay/60000 HTTP/1.1\r\nhost: blue.exam", ""),
    ] {
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, site.http)).await?;
        client.write_all(request.as_bytes()).await?;
        if !tenant.is_empty() {
            let active = "http.default/edge_v1_PORT.downstream_rq_active";
            let active = active.replace("PORT", &site.http.to_string());
            let deadline = Instant::now() + LIMIT;
            while site.world.envoy.stat(&active).await? == 0 {
                ensure!(Instant::now() < deadline, "{active} stays 0");
                sleep(Duration::from_millis(50)).await;
            }
        }
        drop(client);
        site.counted(tenant, "0", 1).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn requests_are_counted_for_the_namespace_that_has_the_host_whatever_clients_send()
-> Result<()> {
    let site = Site::start(ShownStatistics::Traffic(reader())).await?;
    for _ in 0..3 {
        site.plain("blue.example.org", "/status/200").send().await?;
    }
    site.over_tls("blue.example.org", "/status/503")
        .send()
        .await?;
    // No route, no host, and a client that claims to be another tenant.
    site.plain("blue.example.org", "/nothing").send().await?;
    site.plain("unknown.example.net", "/").send().await?;
    let forged = site
        .plain("red.example.org", "/status/200")
        .header("x-gw-scope", "blue")
        .header("x-envoy-original-path", "/blue.example.org")
        .header("x-forwarded-host", "blue.example.org");
    forged.send().await?;
    site.counted("blue", "2", 3).await?;
    site.counted("blue", "5", 1).await?;
    site.counted("blue", "4", 1).await?;
    site.counted("red", "2", 1).await?;
    let text = site.with_times("blue", 5).await?;
    for (labels, count) in [
        (&[("class", "2"), ("tenant", "blue")][..], 3.0),
        (&[("class", "5"), ("tenant", "blue")], 1.0),
        (&[("class", "4"), ("tenant", "blue")], 1.0),
        (&[("class", "2"), ("tenant", "red")], 1.0),
        (&[("class", "4"), ("tenant", "")], 1.0),
    ] {
        let found = value(&text, "envoy_gatewright_requests", labels);
        assert_eq!(found, Some(count), "{labels:?} in\n{text}");
    }
    let time = "envoy_gatewright_request_milliseconds_count";
    assert_eq!(
        value(&text, time, &[("tenant", "blue")]),
        Some(5.0),
        "{text}"
    );
    let bytes = value(
        &text,
        "envoy_gatewright_response_bytes",
        &[("tenant", "red")],
    );
    assert!(bytes > Some(10.0), "{bytes:?} of red");
    // The name of the Gateway has a dot, which divides names of statistics.
    let port = format!("default/edge_v1_{}", site.http);
    let labels = [
        ("envoy_http_conn_manager_prefix", &*port),
        ("envoy_response_code_class", "2"),
    ];
    let of_port = value(&text, "envoy_http_downstream_rq_xx", &labels);
    assert_eq!(of_port, Some(4.0), "{text}");
    for name in ["example.org", "envoy_cluster_upstream", "web"] {
        assert!(!text.contains(name), "{name} is told:\n{text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn numbers_of_traffic_are_for_the_reader_alone() -> Result<()> {
    let site = Site::start(ShownStatistics::Traffic(reader())).await?;
    site.plain("blue.example.org", "/status/200").send().await?;
    site.counted("blue", "2", 1).await?;
    for password in [
        None,
        Some(""),
        Some("abcdefghijklmnopqrstuvwxy"),
        Some("MtEMe4z5ZXDKBM438qGdhCQNOok="),
    ] {
        let (status, text) = site.ask(password).await?;
        assert_eq!(status, 401, "{password:?}");
        assert!(!text.contains("envoy_"), "{password:?}: {text}");
    }
    // The password is asked first: strangers do not use up the scrapes of the reader.
    for _ in 0..40 {
        assert_eq!(site.ask(None).await?.0, 401, "each of them");
    }
    assert!(
        site.told().await?.contains("tenant=\"blue\""),
        "the reader reads"
    );
    let dump = site.world.envoy.config_dump().await?.to_string();
    assert!(!dump.contains(PASSWORD), "Envoy has no password");
    Ok(())
}

/// Waits until these requests of a namespace are counted that a policy reports.
async fn reported(site: &Site, tenant: &str, count: u64) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    let name = format!("gatewright.reported_requests.tenant.{tenant}");
    while site.world.envoy.stat(&name).await? != count {
        ensure!(
            Instant::now() < deadline,
            "{name} is not {count}:\n{}",
            site.world.envoy.admin("/stats?filter=^gatewright").await?
        );
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn requests_that_a_policy_reports_are_counted_for_the_namespace_that_has_the_host()
-> Result<()> {
    let site = Site::start(ShownStatistics::Traffic(reader())).await?;
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"});
    let policy = object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "AccessPolicy",
        "metadata": {"namespace": "blue", "name": "nobody"},
        "spec": {"targetRefs": [target], "enforcement": "Report",
            "clientAddress": {"allow": ["192.0.2.0/24"]}}}),
    );
    site.world.settle(vec![policy]).await?;
    for host in ["blue.example.org", "red.example.org"] {
        site.plain(host, "/status/200").answered(200).await?;
        site.over_tls(host, "/status/200").answered(200).await?;
    }
    site.counted("red", "2", 2).await?;
    reported(&site, "blue", 2).await?;
    let text = site.told().await?;
    let name = "envoy_gatewright_reported_requests";
    assert_eq!(value(&text, name, &[("tenant", "blue")]), Some(2.0));
    assert_eq!(value(&text, name, &[("tenant", "red")]), None, "{text}");
    Ok(())
}

/// So many hosts of a namespace, each with a route.
fn hosts(count: usize) -> Vec<Change> {
    (0..count)
        .map(|number| {
            let route = json!({"parentRefs": [{"namespace": "default", "name": "edge.v1"}],
                "hostnames": [format!("h{number}.example.org")],
                "rules": [{"backendRefs": [{"name": format!("web-{number}"), "port": 80}]}]});
            of("blue", "HTTPRoute", &format!("h{number}"), route)
        })
        .collect()
}

/// A Service for each of these hosts.
fn services(count: usize) -> Vec<Change> {
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    (0..count)
        .flat_map(|number| backend("blue", &format!("web-{number}"), nobody))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn series_do_not_grow_with_hosts() -> Result<()> {
    let count = match std::env::var("TRAFFIC_HOSTS") {
        Ok(count) => count.parse().context("TRAFFIC_HOSTS")?,
        Err(_) => 500,
    };
    let site = Site::start(ShownStatistics::Traffic(reader())).await?;
    let plain = async |host: &str| site.plain(host, "/status/503").send().await;
    plain("blue.example.org").await?;
    site.counted("blue", "5", 1).await?;
    let few = site.told().await?;
    site.world
        .settle([services(count), hosts(count)].concat())
        .await?;
    let resident = site.world.envoy.resident()?;
    let before = site.world.envoy.main_thread_cpu()?;
    let begun = Instant::now();
    let idle = site.told().await?;
    let (took, waited) = (
        site.world.envoy.main_thread_cpu()? - before,
        begun.elapsed(),
    );
    for number in 0..count {
        plain(&format!("h{number}.example.org")).await?;
    }
    site.counted("blue", "5", 1 + count as u64).await?;
    let before = site.world.envoy.main_thread_cpu()?;
    let many = site.told().await?;
    let used = site.world.envoy.main_thread_cpu()? - before;
    let all = site.world.envoy.admin(PATH).await?;
    #[allow(clippy::print_stdout, reason = "the figures of benches/README.md")]
    {
        println!(
            "{count} hosts, {} MB: {} series, {} bytes; {took:?} of the main thread, {waited:?} until the answer; after a \
             request for each {} series, {} bytes, {used:?}, {} MB; all {} series, {} bytes",
            resident >> 20,
            series(&idle),
            idle.len(),
            series(&many),
            many.len(),
            site.world.envoy.resident()? >> 20,
            series(&all),
            all.len()
        );
    }
    assert_eq!(series(&few), series(&many), "of one host and of {count}");
    Ok(())
}

/// Requests of each turn.
const REQUESTS: u32 = 2_000;

/// Microseconds of Envoy's processor time for a request over a persistent connection.
async fn cost(world: &World, probe: &Probe) -> Result<f64> {
    let mut connection = probe.connect().await?;
    let before = threads_time(world.envoy.pid())?;
    for _ in 0..REQUESTS {
        let answer = connection.ask(probe).await?;
        ensure!(answer.status == 200, "{}", answer.status);
    }
    let took = threads_time(world.envoy.pid())? - before;
    Ok(took.as_secs_f64() * 1e6 / f64::from(REQUESTS))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn counting_costs_a_small_part_of_a_request() -> Result<()> {
    let counting = Site::start_with(TrafficMetrics::Namespaces, ShownStatistics::Process).await?;
    let silent = Site::start_with(TrafficMetrics::Off, ShownStatistics::Process).await?;
    let mut ratios = Vec::new();
    let mut costs = Vec::new();
    for _ in 0..7 {
        let [with, without] = [
            cost(
                &counting.world,
                &counting.plain("blue.example.org", "/status/200"),
            )
            .await?,
            cost(
                &silent.world,
                &silent.plain("blue.example.org", "/status/200"),
            )
            .await?,
        ];
        ratios.push(with / without);
        costs.push((with, without));
    }
    ratios.sort_by(f64::total_cmp);
    #[allow(clippy::print_stdout, reason = "the figures of benches/README.md")]
    {
        println!(
            "microseconds of a request with and without counts: {costs:.1?}; ratios {ratios:.3?}"
        );
    }
    assert!(
        ratios[3] < 1.5,
        "half of the ratios are greater than {}",
        ratios[3]
    );
    Ok(())
}

/// A route of namespace `blue` with as many hosts as one may have and two rules, which may ask to be
/// counted by itself.
fn many_hosts(annotation: Option<&str>) -> Change {
    let hosts: Vec<String> = (0..HOSTS).map(|n| format!("h{n}.example.org")).collect();
    let backends = json!([{"name": "web", "port": 80}]);
    let rules = json!([{"matches": [{"path": {"value": "/status"}}], "backendRefs": backends},
        {"matches": [{"path": {"value": "/other"}}], "backendRefs": backends}]);
    let mut metadata = json!({"namespace": "blue", "name": "many"});
    if let Some(value) = annotation {
        metadata["annotations"] = json!({"gatewright.io/traffic-metrics": value});
    }
    object(
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": metadata,
        "spec": {"parentRefs": [{"namespace": "default", "name": "edge.v1"}], "hostnames": hosts, "rules": rules}}),
    )
}

/// A route that asks for it has series of its own, as many as if it had one host; requests of
/// others and their number of series are as before.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_route_with_many_hosts_is_counted_by_itself_where_it_asks() -> Result<()> {
    let site = Site::start(ShownStatistics::Traffic(reader())).await?;
    let own = r#"route="httproute/blue/many""#;
    for (annotation, is_told) in [
        (None, false),
        (Some("Nothing"), false),
        (Some("Route"), true),
    ] {
        site.world.settle(vec![many_hosts(annotation)]).await?;
        for host in 0..HOSTS {
            let host = format!("h{host}.example.org");
            for (path, status) in [("/status/200", 200), ("/status/503", 503), ("/other", 200)] {
                let probe = site.plain(&host, path);
                let deadline = Instant::now() + LIMIT;
                while probe.send().await?.status != status {
                    ensure!(
                        Instant::now() < deadline,
                        "{host}{path} is not answered {status}"
                    );
                }
            }
        }
        site.plain("blue.example.org", "/status/200").send().await?;
        let deadline = Instant::now() + LIMIT;
        loop {
            let text = site.world.envoy.admin(PATH).await?;
            let of_route: Vec<&str> = text.lines().filter(|line| line.contains(own)).collect();
            let is_whole = count_of(&of_route, "_requests{", r#"class="2""#) >= 2 * HOSTS
                && count_of(&of_route, "_requests{", r#"class="5""#) >= HOSTS;
            if is_whole == is_told && (is_told || of_route.is_empty()) {
                ensure!(of_route.len() <= 24, "{} series", of_route.len());
                ensure!(
                    of_route
                        .iter()
                        .all(|line| line.contains(r#"tenant="blue""#)),
                    "{of_route:?}"
                );
                break;
            }
            ensure!(Instant::now() < deadline, "{annotation:?}: {of_route:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
    // The series of the namespace as a whole do not depend on it.
    let text = site.world.envoy.admin(PATH).await?;
    let of_blue: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(r#"tenant="blue""#) && !line.contains("httproute/"))
        .collect();
    ensure!(of_blue.len() <= 26, "{} series", of_blue.len());
    Ok(())
}

/// The sum of the counters of some lines.
fn count_of(lines: &[&str], name: &str, label: &str) -> u64 {
    let of = lines
        .iter()
        .filter(|line| line.contains(name) && line.contains(label));
    of.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// The number of series.
fn series(text: &str) -> usize {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .count()
}

/// The expressions of a dashboard, each with its panel, as Grafana sends them.
fn expressions(dashboard: &str) -> Result<Vec<(String, String)>> {
    let file = folder().join("chart/dashboards").join(dashboard);
    let board: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let panels = board["panels"].as_array().context("panels")?;
    let mut all = Vec::new();
    for panel in panels {
        let title = panel["title"].as_str().context("a title")?;
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().context("an expression")?;
            let expression = expression
                .replace("$__rate_interval", "1m")
                .replace("$namespace", "gatewright-system")
                .replace("$tenant", ".*");
            all.push((title.to_owned(), expression));
        }
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Prometheus: e2e/tools install envoy promtool"]
async fn every_panel_about_traffic_shows_what_envoy_counts() -> Result<()> {
    let site = Site::start(ShownStatistics::Services(reader())).await?;
    let target = Target {
        address: site.statistics,
        path: PATH,
        user: Some((NAME.to_owned(), PASSWORD.to_owned())),
        labels: vec![
            ("namespace", "gatewright-system"),
            ("pod", "gatewright-envoy-a"),
            ("view", "shared"),
        ],
    };
    // A counter begins at its first event, and a rate needs two values.
    let requests = async || -> Result<()> {
        for path in ["/status/200", "/status/500"] {
            site.plain("blue.example.org", path).send().await?;
            site.over_tls("red.example.org", path).send().await?;
        }
        site.plain("unknown.example.net", "/").send().await?;
        TcpStream::connect((Ipv4Addr::LOCALHOST, site.raw)).await?;
        Ok(())
    };
    requests().await?;
    let mut prometheus = Prometheus::start(&[target]).await?;
    fn counted(count: u64) -> String {
        format!(
            "sum(envoy_gatewright_requests{{namespace=\"gatewright-system\",tenant!=\"\"}}) >= {count}"
        )
    }
    prometheus.until(&counted(4)).await?;
    requests().await?;
    prometheus.until(&counted(8)).await?;
    let mut empty = Vec::new();
    let all = expressions("traffic.json")?;
    assert!(all.len() >= 20, "{} expressions", all.len());
    for (title, expression) in &all {
        let found = prometheus
            .query(expression)
            .await
            .with_context(|| format!("{title}: {expression}"))?;
        if found.is_empty() {
            empty.push(format!("{title}: {expression}"));
        }
    }
    assert!(
        empty.is_empty(),
        "these show nothing:\n{}",
        empty.join("\n")
    );
    let share = "sum by (tenant) (rate(envoy_gatewright_requests{class=\"5\",tenant=\"blue\"}[1m])) \
                 / sum by (tenant) (rate(envoy_gatewright_requests{tenant=\"blue\"}[1m])) == 0.5";
    assert_eq!(
        prometheus.query(share).await?.len(),
        1,
        "half of the requests failed"
    );
    Ok(())
}
