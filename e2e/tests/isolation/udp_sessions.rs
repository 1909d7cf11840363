//! Clients of UDP ports with more source ports than an Envoy has files: connections of others go
//! on.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::port::free_port;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::site::{LIMIT, Site, envoy_stat, named};

/// The limit of open files.
const FILES: u32 = 20_000;
/// The source ports of clients of each UDP port: three times as many.
const CLIENTS: u32 = 60_000;
/// Source ports of one address.
const OF_ADDRESS: u32 = 20_000;

/// A Gateway of mallory's with these UDP ports, whose datagrams go to one backend.
fn game(ports: &[u16], backend: SocketAddr) -> Result<String> {
    let mut text = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
         metadata: {name: game, namespace: mallory}\nspec:\n  gatewayClassName: ours\n  listeners:\n"
        .to_owned();
    for port in ports {
        writeln!(
            text,
            "  - {{name: udp-{port}, protocol: UDP, port: {port}}}"
        )?;
    }
    write!(
        text,
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: UDPRoute\n\
         metadata: {{name: game, namespace: mallory}}\nspec: {{parentRefs: [{{name: game}}], rules: [{{backendRefs: \
         [{{name: game, port: 53}}]}}]}}\n---\napiVersion: v1\nkind: Service\n\
         metadata: {{name: game, namespace: mallory}}\nspec: {{ports: [{{port: 53, protocol: UDP}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: game, namespace: mallory, \
         labels: {{kubernetes.io/service-name: game}}}}\naddressType: IPv4\nendpoints: [{{addresses: [{}]}}]\n\
         ports: [{{port: {}, protocol: UDP}}]\n",
        backend.ip(),
        backend.port()
    )?;
    Ok(text)
}

/// Sends a datagram from each of so many source ports.
fn send(port: u16, clients: u32) -> Result<()> {
    for client in 0..clients {
        let address = Ipv4Addr::from(0x7f_00_01_01 + client / OF_ADDRESS);
        let number = u16::try_from(10_000 + client % OF_ADDRESS)?;
        // Another program may have the port.
        let Ok(socket) = UdpSocket::bind((address, number)) else {
            continue;
        };
        // The queue of the port may be full.
        let _sent = socket.send_to(b"hello", (Ipv4Addr::LOCALHOST, port));
    }
    Ok(())
}

/// Requests of alice's clients until told to stop; returns their number.
async fn alice(probe: e2e::probe::Probe, stop: Arc<AtomicBool>) -> Result<usize> {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = named(&probe)
            .await
            .with_context(|| format!("request {count}"))?;
        ensure!(name == "alice", "answered by {name}");
        count += 1;
        sleep(Duration::from_millis(20)).await;
    }
    Ok(count)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn clients_of_udp_ports_leave_files_for_connections_of_others() -> Result<()> {
    let site = Site::start_within_files(FILES).await?;
    let backend = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let ports = [free_port()?, free_port()?, free_port()?, free_port()?];
    site.save("game.yaml", &game(&ports, backend.local_addr()?)?)?;
    // A port is served once a session exists there.
    for port in ports {
        let began = Instant::now();
        while envoy_sessions(&site, port).await? == 0 {
            ensure!(
                began.elapsed() < LIMIT,
                "no session at {port}\n{}",
                site.program.output()
            );
            send(port, 1)?;
            sleep(Duration::from_millis(50)).await;
        }
    }
    let envoy = site.envoy()?;
    let stop = Arc::new(AtomicBool::new(false));
    let probe = site
        .plain("alice.example.org")
        .limit(Duration::from_secs(30));
    let requests = tokio::spawn(alice(probe, stop.clone()));
    for _ in 0..2 {
        for port in ports {
            spawn_blocking(move || send(port, CLIENTS)).await??;
        }
    }
    let files = std::fs::read_dir(format!("/proc/{envoy}/fd")).map(Iterator::count);
    stop.store(true, Ordering::Relaxed);
    let count = requests.await?.context("a request of alice's")?;
    ensure!(count > 10, "alice made only {count} requests");
    ensure!(
        site.envoy()? == envoy,
        "another Envoy runs\n{}",
        site.program.output()
    );
    ensure!(
        files? < FILES as usize / 2,
        "files are left for connections"
    );
    for port in ports {
        let sessions = envoy_sessions(&site, port).await?;
        ensure!(
            sessions <= 156,
            "port {port} has more than its part of 2,500 sessions: {sessions}"
        );
    }
    Ok(())
}

async fn envoy_sessions(site: &Site, port: u16) -> Result<u64> {
    envoy_stat(
        site.state.path(),
        &format!("udp.mallory/game:{port}/udp.downstream_sess_active"),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_start_without_files_for_its_udp_sessions_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let state = dir.path().join("state").display().to_string();
    let envoy = e2e::envoy::binary()?.display().to_string();
    let args = [
        "standalone",
        "--once",
        "--state-dir",
        &state,
        "--envoy",
        &envoy,
        "--set",
        "connections.udpSessions=16384",
    ];
    let mut program = e2e::gatewright::Gatewright::start_within_files(20_000, &args)?;
    let output = program.end().await?;
    let expected =
        "the limit of open files is 20000, and 16384 UDP sessions with 16 connections need 33056";
    ensure!(output.contains(expected), "it tells why: {output}");
    Ok(())
}
