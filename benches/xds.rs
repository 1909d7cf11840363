//! Benchmark of the xDS server alone, compared with go-control-plane, and with a real Envoy.
//!
//! `cargo bench -p e2e-inside --bench xds`, or with `-- encode`, `-- fanout 1 10`, `-- adds 60` for a
//! part. Each server runs in a process of its own, ours on one thread, so that its CPU time and
//! memory exclude the clients. The rows of other servers come from `benches/peers`, if
//! `e2e/tools install go` was run. Times are of this machine; read ratios. W0, the speed of copying
//! memory at that time, shows the load of the machine.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use e2e::simenvoy::{DeltaClient, SCOPE, unix_channel};
use e2e::usage;
use e2e_inside::resources::{free_port, on_demand_listener, prefix, scope, scoped, secret};
use envoy_types::pb::envoy::config::route::v3::ScopedRouteConfiguration;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use xds::{Authority, Cache, Generation, Kind, Resource, Server, UnixPeers, Update, View};

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RESOURCES: usize = 10_000;
const CHANGES: usize = 20;
/// Changes before the measurement: by then the buffers of both sides have reached their size.
const WARM_UP: usize = 20;
const ADDS_PER_SECOND: u64 = 400;
/// One in so many adds is requested from outside.
const SAMPLE: u64 = 10;
const DOMAIN: &str = "adds.test";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    fn streams(args: &[&str]) -> std::result::Result<Vec<usize>, anyhow::Error> {
        args.iter()
            .map(|a| a.parse().context("a number of streams"))
            .collect::<Result<Vec<_>>>()
    }
    match words.as_slice() {
        ["--fanout", socket] => serve_fanout(socket),
        ["--adds", socket, pair, port, seconds] => {
            serve_adds(socket, pair, port.parse()?, seconds.parse()?)
        }
        ["encode"] => encode(),
        ["fanout", rest @ ..] if !rest.is_empty() => fanout(&streams(rest)?),
        ["adds", seconds] => adds(seconds.parse()?),
        [] => {
            encode()?;
            fanout(&[1, 10, 100, 1000])?;
            adds(60)
        }
        other => anyhow::bail!("encode | fanout E... | adds SECONDS, not {other:?}"),
    }
}

fn memcpy() -> f64 {
    let from = vec![1u8; 64 << 20];
    let mut to = vec![0u8; 64 << 20];
    let start = Instant::now();
    to.copy_from_slice(std::hint::black_box(&from));
    std::hint::black_box(&to);
    to.len() as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// CPU time of all threads of this process.
fn cpu() -> Result<Duration> {
    usage::threads_time(std::process::id())
}

fn resident_kb() -> Result<u64> {
    Ok(usage::memory(std::process::id(), "VmRSS")? / 1024)
}

/// Measures the making of a resource: encoded, hashed, wrapped for both protocols.
fn encode() -> Result<()> {
    println!("message B | encoded and hashed GB/s | memcpy GB/s | memcpy / ours");
    for size in [200, 500, 5_000, 50_000] {
        let message = ScopedRouteConfiguration {
            route_configuration_name: "x".repeat(size),
            ..Default::default()
        };
        let rounds = 100_000_000 / (size + 2_000);
        let start = Instant::now();
        let mut bytes = 0;
        for _ in 0..rounds {
            bytes += std::hint::black_box(Resource::new("name", std::hint::black_box(&message)))
                .encoded_len();
        }
        let ours = bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
        let floor = memcpy();
        println!("{size:>9} | {ours:.2} | {floor:.1} | {:.0}", floor / ours);
    }
    Ok(())
}

/// A server under measurement, which answers one line to each line. It ends with its input.
struct Measured {
    child: Child,
    commands: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Measured {
    fn start(program: &Path, args: &[&str]) -> Result<Measured> {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("a server")?;
        let commands = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        Ok(Measured {
            child,
            commands,
            answers,
        })
    }

    fn line(&mut self) -> Result<String> {
        Ok(self.answers.next().context("the server ended")??)
    }

    fn ask(&mut self, command: &str) -> Result<String> {
        writeln!(self.commands.as_mut().context("a pipe")?, "{command}")?;
        self.line()
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns the go-control-plane server, if Go is installed.
fn peers() -> Result<Option<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let go = root.join(".tools/go");
    if !go.exists() {
        println!("go-control-plane is left out: e2e/tools install go");
        return Ok(None);
    }
    let out = std::env::current_exe()?.with_file_name("xds-peers");
    let built = Command::new(&go)
        .args(["build", "-o"])
        .arg(&out)
        .arg(".")
        .current_dir(root.join("benches/peers"))
        .status()?;
    ensure!(
        built.success(),
        "benches/peers does not build; is a Go module proxy reachable?"
    );
    Ok(Some(out))
}

/// Measures changes of one of 10,000 resources until all streams have acknowledged them.
fn fanout(rows: &[usize]) -> Result<()> {
    let peers = peers()?;
    println!(
        "server   | streams | change -> last ACK p50 / max ms | server CPU ms per change | resident KB per stream | bytes per change and stream | W0 GB/s"
    );
    for &streams in rows {
        fanout_row("ours", &std::env::current_exe()?, &["--fanout"], streams)?;
        for kind in ["linear", "snapshot"] {
            if let Some(peers) = &peers {
                fanout_row(kind, peers, &[kind], streams)?;
            }
        }
    }
    Ok(())
}

fn fanout_row(name: &str, program: &Path, args: &[&str], streams: usize) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("xds.sock");
    let path = socket.display().to_string();
    let count = RESOURCES.to_string();
    let mut args = [args, &[&path]].concat();
    if name != "ours" {
        args.push(&count);
    }
    let mut server = Measured::start(program, &args)?;
    server.line()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let mut clients = runtime.block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        for i in 0..streams {
            let channel = unix_channel(&socket).await?;
            let mut client = DeltaClient::open_with(channel, &format!("e{i}"), SCOPE).await?;
            client.forget_bodies();
            client.run_until(|c| c.counted(SCOPE) >= RESOURCES).await?;
            clients.spawn(async move {
                // Ends with the server.
                let _ = client.run_until(|_| false).await;
            });
        }
        Ok::<_, anyhow::Error>(clients)
    })?;
    let resident: i64 = server.ask(&format!("ready {streams}"))?.parse()?;
    for _ in 0..WARM_UP {
        server.ask("change")?;
    }
    let mut rows = Vec::new();
    for _ in 0..CHANGES {
        let answer = server.ask("change")?;
        rows.push(
            answer
                .split(' ')
                .map(str::parse)
                .collect::<Result<Vec<u64>, _>>()?,
        );
    }
    rows.sort();
    let cpu = rows.iter().map(|r| r[1]).sum::<u64>() as f64 / CHANGES as f64 / 1e3;
    println!(
        "{name:<8} | {streams:>7} | {:.2} / {:.2} | {cpu:.2} | {} | {} | {:.1}",
        rows[CHANGES / 2][0] as f64 / 1e3,
        rows[CHANGES - 1][0] as f64 / 1e3,
        resident / i64::try_from(streams)?,
        rows[0][2] / streams as u64,
        memcpy(),
    );
    drop(server);
    runtime.block_on(async { while clients.join_next().await.is_some() {} });
    Ok(())
}

/// Makes a resource of the size of a scope with three routes.
fn wide(i: usize, value: usize) -> Resource {
    let name = format!("s{i}");
    let message = ScopedRouteConfiguration {
        name: name.clone(),
        route_configuration_name: format!("{value:0>480}"),
        ..Default::default()
    };
    Resource::new(name, &message)
}

/// A view on a socket of its own.
struct Serving {
    cache: Cache,
    view: View,
    stop: tokio::sync::oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Serving {
    fn start(socket: &str, upserts: Vec<Resource>) -> Result<Serving> {
        let cache = Cache::new();
        let view = View::new("fleet");
        cache.publish(
            &view,
            Update {
                upserts,
                removals: vec![],
            },
        );
        let listener = xds::bind_unix(socket.as_ref(), 0o600)?;
        let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(socket)?);
        let server = Server::new(cache.clone(), UnixPeers::new().allow(me, view.clone()));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(async move { server.serve_unix(listener, stopped).await });
        Ok(Serving {
            cache,
            view,
            stop,
            task,
        })
    }

    async fn acknowledged(&self, generation: Generation, streams: usize) -> Result<()> {
        let mut changes = self.cache.watch(&self.view);
        while self.cache.progress(&self.view).acknowledged(generation) != (streams, streams) {
            changes.changed().await?;
            // Polling costs time that grows with the number of streams; several acknowledgements
            // are awaited at once.
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        Ok(())
    }

    async fn end(self) -> Result<()> {
        drop(self.stop);
        Ok(self.task.await?)
    }
}

fn commands() -> (
    tokio::sync::mpsc::Receiver<String>,
    std::thread::JoinHandle<()>,
) {
    let (lines, commands) = tokio::sync::mpsc::channel(8);
    let reader = std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    (commands, reader)
}

#[tokio::main(flavor = "current_thread")]
async fn serve_fanout(socket: &str) -> Result<()> {
    let serving = Serving::start(socket, (0..RESOURCES).map(|i| wide(i, 0)).collect())?;
    let base = resident_kb()?;
    println!("listening");
    let (mut commands, reader) = commands();
    let mut value = 0;
    while let Some(command) = commands.recv().await {
        if let Some(streams) = command.strip_prefix("ready ") {
            serving
                .acknowledged(
                    serving.cache.progress(&serving.view).published,
                    streams.parse()?,
                )
                .await?;
            println!("{}", resident_kb()?.saturating_sub(base));
            continue;
        }
        value += 1;
        let streams = serving.cache.progress(&serving.view).nodes.len();
        let before = cpu()?;
        let bytes = serving.cache.counts().of(Kind::Scope).bytes;
        let start = Instant::now();
        let update = Update {
            upserts: vec![wide(17, value)],
            removals: vec![],
        };
        fn acks(serving_cache: &Cache) -> u64 {
            serving_cache.counts().of(Kind::Scope).acks
        }
        let wanted = acks(&serving.cache) + streams as u64;
        let generation = serving.cache.publish(&serving.view, update);
        // As the other servers do: polling the progress of every stream that often would be most of
        // the cost.
        while acks(&serving.cache) < wanted {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = start.elapsed();
        let used = cpu()? - before;
        println!(
            "{} {} {}",
            took.as_micros(),
            used.as_micros(),
            serving.cache.counts().of(Kind::Scope).bytes - bytes
        );
        serving.acknowledged(generation, streams).await?;
    }
    serving.end().await?;
    reader.join().ok().context("the reader of commands")
}

fn host(i: u64) -> String {
    format!("h{i}.{DOMAIN}")
}

fn micros() -> Result<u64> {
    Ok(u64::try_from(
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros(),
    )?)
}

/// Adds hosts at a steady rate: each a scope and a certificate.
#[tokio::main(flavor = "current_thread")]
async fn serve_adds(socket: &str, pair: &str, port: u16, seconds: u64) -> Result<()> {
    fn read(name: &str, pair: &str) -> std::result::Result<String, std::io::Error> {
        std::fs::read_to_string(Path::new(pair).join(name))
    }
    let certificate = read("certificate", pair)?;
    let key = read("key", pair)?;
    let serving = Serving::start(socket, vec![on_demand_listener("front", port, scoped())])?;
    serving.acknowledged(1, 1).await?;
    println!("listening");
    let (mut commands, reader) = commands();
    commands.recv().await.context("a command")?;
    let before = cpu()?;
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / ADDS_PER_SECOND));
    let mut generation = 0;
    for i in 0..ADDS_PER_SECOND * seconds {
        ticks.tick().await;
        let at = micros()?;
        let upserts = vec![
            scope(&host(i), prefix()),
            secret(&host(i), &certificate, &key),
        ];
        generation = serving.cache.publish(
            &serving.view,
            Update {
                upserts,
                removals: vec![],
            },
        );
        if i % SAMPLE == 0 {
            println!("{i} {at}");
        }
    }
    serving.acknowledged(generation, 1).await?;
    let used = cpu()? - before;
    let counts = serving.cache.counts();
    println!(
        "end {} {}",
        used.as_micros(),
        counts.kinds.iter().map(|k| k.nacks).sum::<u64>()
    );
    while commands.recv().await.is_some() {}
    serving.end().await?;
    reader.join().ok().context("the reader of commands")
}

fn bootstrap(socket: &Path) -> String {
    let ads = json!({"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"});
    let http2 = json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}}}});
    json!({
        "node": {"id": "bench", "cluster": "bench"},
        "dynamic_resources": {
            "ads_config": {"api_type": "DELTA_GRPC", "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}]},
            "cds_config": ads, "lds_config": ads,
        },
        "static_resources": {"clusters": [{"name": "xds", "type": "STATIC", "connect_timeout": "1s",
            "typed_extension_protocol_options": http2,
            "load_assignment": {"cluster_name": "xds", "endpoints": [{"lb_endpoints": [{"endpoint": {
                "address": {"pipe": {"path": socket}}}}]}]}}]},
    })
    .to_string()
}

/// Waits for the first 200 of a new host, each try on a new connection; returns the number of other
/// answers before.
async fn live(port: u16, connector: tokio_rustls::TlsConnector, host: String) -> Result<u64> {
    for attempt in 0..2_000 {
        let name = rustls_pki_types::ServerName::try_from(host.clone())?;
        let exchange = async {
            let tcp = TcpStream::connect(("127.0.0.1", port)).await?;
            tcp.set_nodelay(true)?;
            let mut tls = connector.connect(name, tcp).await?;
            tls.write_all(
                format!("GET / HTTP/1.1\r\nHost: {host}\r\nx-key: {host}\r\n\r\n").as_bytes(),
            )
            .await?;
            let mut head = [0; 12];
            tls.read_exact(&mut head).await?;
            Ok::<_, std::io::Error>(head)
        };
        if exchange.await.is_ok_and(|head| head.ends_with(b"200")) {
            return Ok(attempt);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    anyhow::bail!("{host} never became live")
}

#[tokio::main]
async fn adds(seconds: u64) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("xds.sock");
    let hour = Duration::from_secs(3600);
    let now = SystemTime::now();
    let authority = Authority::new("bench", hour, now)?;
    let pair = authority.issue_server(&[format!("*.{DOMAIN}")], hour, now)?;
    std::fs::write(dir.path().join("certificate"), &pair.certificate)?;
    std::fs::write(dir.path().join("key"), &pair.key)?;
    let port = free_port();
    let args = [
        "--adds",
        &socket.display().to_string(),
        &dir.path().display().to_string(),
        &port.to_string(),
        &seconds.to_string(),
    ];
    let mut server = Measured::start(&std::env::current_exe()?, &args)?;
    while !socket.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let envoy = e2e::envoy::Envoy::start(&bootstrap(&socket)).await?;
    server.line()?;
    let mut roots = rustls::RootCertStore::empty();
    let root = authority.certificate().as_bytes();
    roots.add(rustls_pki_types::pem::PemObject::from_pem_slice(root)?)?;
    let config = rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()?
    .with_root_certificates(roots)
    .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    writeln!(server.commands.as_mut().context("a pipe")?, "go")?;
    let before = envoy.main_thread_cpu()?;
    let (lines, mut added) = tokio::sync::mpsc::channel(1024);
    let reader = std::thread::spawn(move || -> Result<Measured> {
        loop {
            let line = server.line()?;
            let last = line.starts_with("end ");
            lines.blocking_send(line).ok().context("the probes ended")?;
            if last {
                return Ok(server);
            }
        }
    });
    let mut probes = tokio::task::JoinSet::new();
    let mut used = 0;
    let mut nacks = 0;
    while let Some(line) = added.recv().await {
        let mut words = line.split(' ');
        let first = words.next().context("a word")?;
        let mut number = || {
            words
                .next()
                .context("a figure")?
                .parse::<u64>()
                .context("a figure")
        };
        if first == "end" {
            (used, nacks) = (number()?, number()?);
            break;
        }
        let (i, at, connector) = (first.parse()?, number()?, connector.clone());
        probes.spawn(async move {
            let early = live(port, connector, host(i)).await?;
            Ok::<_, anyhow::Error>((micros()?.saturating_sub(at), early))
        });
    }
    let mut times = Vec::new();
    while let Some(probe) = probes.join_next().await {
        times.push(probe??.0);
    }
    times.sort_unstable();
    fn at(percent: usize, times: &[u64]) -> f64 {
        times[(times.len() * percent / 100).min(times.len() - 1)] as f64 / 1e3
    }
    let envoy_cpu = (envoy.main_thread_cpu()? - before).as_secs_f64();
    println!(
        "{ADDS_PER_SECOND} adds/s for {seconds} s into one Envoy: live p50 {:.1} / p99 {:.1} / max {:.1} ms of {} looked for; {nacks} refused; ours {:.1} % of a core, Envoy's main thread {:.1} %",
        at(50, &times),
        at(99, &times),
        at(100, &times),
        times.len(),
        used as f64 / 1e4 / seconds as f64,
        envoy_cpu * 100.0 / seconds as f64,
    );
    drop(reader.join().ok().context("the reader")??);
    Ok(())
}
