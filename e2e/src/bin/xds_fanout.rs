//! Fan-out: one of 10,000 resources changes, E streams acknowledge it.
//!
//! `cargo run --release -p e2e --bin xds_fanout -- 1 10 100 1000`. The server runs in a process of its own,
//! so that its CPU time and memory are not those of the clients. A thread of this process copies memory
//! before each row (W0), so that rows of different machines can be compared.

#![allow(clippy::print_stdout, reason = "a benchmark prints its rows")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::simenvoy::{DeltaClient, unix_channel};
use envoy_types::pb::envoy::config::route::v3::ScopedRouteConfiguration;
use xds::{Cache, Kind, Resource, Server, UnixPeers, Update, View};

const RESOURCES: usize = 10_000;
const CHANGES: usize = 20;

fn main() -> Result<()> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--serve") {
        return serve(&args[1]);
    }
    if args.is_empty() {
        args = ["1", "10", "100", "1000"].map(str::to_owned).to_vec();
    }
    println!(
        "streams | change -> last ACK p50 / max ms | server CPU ms per change | resident KB per stream | bytes per change and stream | memcpy GB/s"
    );
    for arg in args {
        row(arg.parse().context("the number of streams")?)?;
    }
    Ok(())
}

fn resource(i: usize, value: usize) -> Resource {
    let name = format!("s{i}");
    // As large as a scope with three routes.
    let message = ScopedRouteConfiguration { name: format!("{value:0>480}"), ..Default::default() };
    Resource::new(name, &message)
}

/// CPU time of all threads of this process.
fn cpu() -> Result<Duration> {
    let mut nanos = 0u64;
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += stat.split(' ').next().context("a figure")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

fn resident_kb() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Takes `ready E` and `change` on its input; answers each with one line of figures.
#[tokio::main(worker_threads = 1)]
async fn serve(path: &str) -> Result<()> {
    let (cache, view) = (Cache::new(), View::new("fleet"));
    cache.publish(&view, Update { upserts: (0..RESOURCES).map(|i| resource(i, 0)).collect(), removals: vec![] });
    let listener = xds::bind_unix(path.as_ref(), 0o600)?;
    let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(path)?);
    let server = Server::new(cache.clone(), UnixPeers::new().allow(me, view.clone()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        server
            .serve_unix(listener, async {
                let _ = stopped.await;
            })
            .await;
    });
    let base = resident_kb()?;
    println!("listening");
    let (lines, mut commands) = tokio::sync::mpsc::channel(8);
    let reader = std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let mut changes = cache.watch(&view);
    let mut value = 0;
    while let Some(command) = commands.recv().await {
        if let Some(streams) = command.strip_prefix("ready ") {
            let streams: usize = streams.parse()?;
            let generation = cache.progress(&view).published;
            while cache.progress(&view).acknowledged(generation) != (streams, streams) {
                changes.changed().await?;
            }
            println!("{}", resident_kb()?.saturating_sub(base));
            continue;
        }
        value += 1;
        let (before, bytes, start) = (cpu()?, cache.counts().of(Kind::Scope).bytes, Instant::now());
        let streams = cache.progress(&view).nodes.len();
        let generation = cache.publish(&view, Update { upserts: vec![resource(17, value)], removals: vec![] });
        while cache.progress(&view).acknowledged(generation).0 < streams {
            changes.changed().await?;
            // Looking costs time that grows with the streams; look at a few acknowledgements at once.
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        let (took, used) = (start.elapsed(), cpu()? - before);
        println!("{} {} {}", took.as_micros(), used.as_micros(), cache.counts().of(Kind::Scope).bytes - bytes);
    }
    drop(stop);
    serving.await?;
    reader.join().ok().context("the reader of commands")?;
    Ok(())
}

fn memcpy() -> f64 {
    let (from, mut to) = (vec![1u8; 64 << 20], vec![0u8; 64 << 20]);
    let start = Instant::now();
    to.copy_from_slice(std::hint::black_box(&from));
    std::hint::black_box(&to);
    to.len() as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn row(streams: usize) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("xds.sock");
    let mut server = Command::new(std::env::current_exe()?)
        .arg("--serve")
        .arg(&socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut commands = server.stdin.take().context("a pipe")?;
    let mut answers = BufReader::new(server.stdout.take().context("a pipe")?).lines();
    let mut answer = move || answers.next().context("the server ended")?.context("the server's answer");
    answer()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut clients = runtime.block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        for i in 0..streams {
            let mut client = DeltaClient::open(unix_channel(&socket).await?, &format!("e{i}")).await?;
            client.forget_bodies();
            client.subscribe(Kind::Scope, &[]).await?;
            client.run_until(|c| c.counted(Kind::Scope) >= RESOURCES).await?;
            clients.spawn(async move {
                // Ends with the server.
                let _ = client.run_until(|_| false).await;
            });
        }
        Ok::<_, anyhow::Error>(clients)
    })?;
    writeln!(commands, "ready {streams}")?;
    let resident: usize = answer()?.parse()?;
    let mut rows = Vec::new();
    for _ in 0..CHANGES {
        writeln!(commands, "change")?;
        let figures: Vec<u64> = answer()?.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        rows.push(figures);
    }
    rows.sort();
    let cpu = rows.iter().map(|r| r[1]).sum::<u64>() as f64 / CHANGES as f64 / 1e3;
    println!(
        "{streams:>7} | {:.2} / {:.2} | {cpu:.2} | {} | {} | {:.1}",
        rows[CHANGES / 2][0] as f64 / 1e3,
        rows[CHANGES - 1][0] as f64 / 1e3,
        resident / streams,
        rows[0][2] / streams as u64,
        memcpy(),
    );
    drop(commands);
    runtime.block_on(async { while clients.join_next().await.is_some() {} });
    server.wait()?;
    Ok(())
}
