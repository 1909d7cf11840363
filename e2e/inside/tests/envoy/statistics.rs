//! Statistics of an Envoy for Prometheus: a port of its own that answers one request, and nothing
//! else of the admin interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::envoy::Envoy;
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use e2e::probe::Probe;
use e2e_inside::world::{World, api, class, service};
use gatewright_core::translate::Change;
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

const PATH: &str = "/stats/prometheus";
const LIMIT: Duration = Duration::from_secs(60);
/// The requests that are answered at once; one more every two seconds.
const AT_ONCE: usize = 10;

/// A Gateway, and so many hosts, each with a route and a Service of its own.
fn hosts(count: usize, port: u16) -> Vec<Change> {
    let listener = json!({"name": "http", "protocol": "HTTP", "port": port});
    let gateway = json!({"gatewayClassName": "ours", "listeners": [listener]});
    let mut changes = vec![class(), api("Gateway", "edge", gateway)];
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    for number in 0..count {
        let name = format!("web-{number}");
        changes.extend(service(&name, nobody));
        let route = json!({"parentRefs": [{"name": "edge"}], "hostnames": [format!("{name}.example.com")],
            "rules": [{"backendRefs": [{"name": name, "port": 80}]}]});
        changes.push(api("HTTPRoute", &name, route));
    }
    changes
}

/// Returns the lines that are series.
fn series(text: &str) -> usize {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .count()
}

fn value(text: &str, name: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("no {name} in\n{text}"))?;
    Ok(line.trim_start_matches("{}").trim().parse()?)
}

/// Returns the statistics.
async fn told(at: SocketAddr) -> Result<String> {
    let answer = Probe::http(at, "envoy").path(PATH).send().await?;
    ensure!(answer.status == 200, "{}", answer.status);
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

/// Sends exactly this text, and returns the status of the answer.
async fn status_of(at: SocketAddr, request: &str) -> Result<u16> {
    let mut socket = TcpStream::connect(at).await?;
    socket.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    timeout(LIMIT, socket.read_to_string(&mut answer))
        .await
        .context("the connection stays open")??;
    let status = answer.split(' ').nth(1);
    status
        .context("an answer")?
        .parse()
        .with_context(|| answer.clone())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn statistics_are_all_that_the_port_answers() -> Result<()> {
    let (world, at) = World::start_with_statistics(hosts(1, free_port()?)).await?;
    let answer = Probe::http(at, "envoy").path(PATH).send().await?;
    assert_eq!(answer.status, 200);
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(
        value(&text, "envoy_server_memory_heap_size")? > 1e6,
        "{text}"
    );
    let pressure = value(
        &text,
        "envoy_overload_envoy_resource_monitors_fixed_heap_pressure",
    )?;
    assert!(
        (0.0..100.0).contains(&pressure),
        "of the heap: {pressure} %"
    );
    for name in ["web-0", "example.com", "default"] {
        assert!(!text.contains(name), "{name} of a tenant is told:\n{text}");
    }

    let paths = [
        "/",
        "/stats",
        "/stats/",
        "/stats/prometheus/",
        "/stats/prometheus?",
        "/stats/prometheus?filter=cluster",
        "/stats/prometheus;x",
        "/stats/prometheus/../../config_dump",
        "/stats/prometheus/..;/config_dump",
        "/stats/prometheus/%2e%2e/%2e%2e/config_dump",
        "/stats/prometheus%2f..%2f..%2fconfig_dump",
        "/stats/prometheus\\..\\..\\config_dump",
        "/stats/./prometheus",
        "//stats/prometheus",
        "/STATS/PROMETHEUS",
        "/stats%2fprometheus",
        "/config_dump",
        "//config_dump",
        "/%63onfig_dump",
        "/config_dump?include_eds",
        "/quitquitquit",
        "/certs",
        "/clusters",
        "/logging?level=debug",
        "http://envoy/config_dump",
        "*",
    ];
    for path in paths {
        let request = format!("GET {path} HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n");
        let status = status_of(at, &request).await?;
        assert!(status == 404 || status == 400, "{path:?}: {status}");
    }
    for method in ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "get"] {
        for path in [PATH, "/quitquitquit"] {
            let request = format!(
                "{method} {path} HTTP/1.1\r\nhost: envoy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let status = status_of(at, &request).await?;
            assert!(status == 404 || status == 400, "{method} {path}: {status}");
        }
    }
    // Fields that lead elsewhere in some proxies.
    for field in ["x-envoy-original-path", "x-original-url", "x-rewrite-url"] {
        let request = format!(
            "GET / HTTP/1.1\r\nhost: envoy\r\n{field}: {PATH}\r\nconnection: close\r\n\r\n"
        );
        assert_eq!(status_of(at, &request).await?, 404, "{field}");
    }
    assert_eq!(
        world.envoy.admin("/ready").await?.trim(),
        "LIVE",
        "nobody has stopped it"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn statistics_do_not_grow_with_hosts_and_are_few_a_second() -> Result<()> {
    let port = free_port()?;
    let (world, at) = World::start_with_statistics(hosts(64, port)).await?;
    let few = told(at).await?;
    world.settle(hosts(1000, port)).await?;
    let before = world.envoy.main_thread_cpu()?;
    let many = told(at).await?;
    let took = world.envoy.main_thread_cpu()? - before;
    let all = world.envoy.admin(PATH).await?;
    #[allow(clippy::print_stdout, reason = "the figures of benches/README.md")]
    {
        println!(
            "64 hosts: {} series, {} bytes; 1000 hosts: {} series, {} bytes, {took:?} of the main thread; \
             of the admin interface {} series, {} bytes",
            series(&few),
            few.len(),
            series(&many),
            many.len(),
            series(&all),
            all.len()
        );
    }
    assert_eq!(
        series(&few),
        series(&many),
        "series of 64 and of 1000 hosts"
    );
    assert!(series(&many) < 250, "{} series", series(&many));
    assert!(many.len() < 24 << 10, "{} bytes", many.len());

    // A client that asks on and on gets little, and does not end the statistics of others.
    let mut answered = 0;
    let begun = Instant::now();
    for _ in 0..200 {
        let answer = Probe::http(at, "envoy").path(PATH).send().await?;
        answered += usize::from(answer.status == 200);
    }
    let most = AT_ONCE + begun.elapsed().as_secs() as usize / 2 + 1;
    assert!(
        answered <= most,
        "{answered} answers in {:?}",
        begun.elapsed()
    );
    let until = Instant::now() + LIMIT;
    while told(at).await.is_err() {
        ensure!(Instant::now() < until, "no answer any more");
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Runs `gatewright bootstrap` for an Envoy of a cluster, and has it wait for no controller.
fn bootstrap(dir: &Path, at: SocketAddr) -> Result<Value> {
    let file = dir.join("bootstrap.json");
    let path = |name: &str| dir.join(name).display().to_string();
    let made = Gatewright::run(&[
        "bootstrap",
        "--xds",
        "127.0.0.1:9",
        "--tls-dir",
        &path(""),
        "--envoy-admin",
        &path("admin.sock"),
        "--stats",
        &at.to_string(),
        "--file",
        &path("bootstrap.json"),
    ])?;
    ensure!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let mut made: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    made["dynamic_resources"] = Value::Null;
    Ok(made)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_envoy_of_a_cluster_encrypts_its_statistics() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let made = rcgen::generate_simple_self_signed(["pod.example".to_owned()])?;
    let files = [
        ("tls.crt", made.cert.pem()),
        ("tls.key", made.signing_key.serialize_pem()),
        ("ca.crt", made.cert.pem()),
    ];
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text)?;
    }
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let mut envoy = Envoy::start(&bootstrap(dir.path(), at)?.to_string()).await?;
    envoy.ready().await?;
    let answer = Probe::https(at, "anything").path(PATH).send().await?;
    assert_eq!(answer.status, 200);
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(value(&text, "envoy_server_live")? > 0.5, "{text}");
    let quit = Probe::https(at, "anything")
        .method(Method::POST)
        .path("/quitquitquit");
    assert_eq!(quit.send().await?.status, 404);
    let plain = Probe::http(at, "envoy").path(PATH).send().await;
    assert!(plain.is_err(), "without TLS: {plain:?}");
    Ok(())
}
