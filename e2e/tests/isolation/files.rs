//! An Envoy with few files: its connections are limited below them, and idle ones make room.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::time::{Instant, sleep};

use crate::site::{Site, named};

/// The limit of open files.
const FILES: u32 = 4096;
/// The connections of one client, more than that.
const HELD: usize = 5000;
/// The time until another client is served: far below the idle timeout.
const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn idle_connections_of_one_address_keep_no_other_out() -> Result<()> {
    // This process holds the other ends.
    let own = std::process::id().to_string();
    let raised = Command::new("prlimit")
        .args(["--pid", &own, "--nofile=16384:"])
        .output();
    let raised = raised.context("running prlimit (package util-linux)")?;
    ensure!(
        raised.status.success(),
        "the limit of files of this test cannot be raised: {raised:?}"
    );
    let site = Site::start_within_files(FILES).await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, site.http));
    let mut held = Vec::with_capacity(HELD);
    for number in 0..HELD {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::new(127, 0, 0, 2), 0).into())?;
        let mut stream = socket.connect(address).await?;
        if number % 2 == 0 {
            // One request, after which the connection is kept; Envoy may have closed it already.
            let _closed = stream
                .write_all(b"GET / HTTP/1.1\r\nHost: alice.example.org\r\n\r\n")
                .await;
        }
        held.push(stream);
    }
    let files = std::fs::read_dir(format!("/proc/{}/fd", site.envoy()?))?.count();
    ensure!(
        files < FILES as usize,
        "Envoy has a file for what comes next: {files}"
    );
    let probe = site
        .plain("alice.example.org")
        .limit(Duration::from_secs(5));
    let began = Instant::now();
    while !named(&probe).await.is_ok_and(|name| name == "alice") {
        ensure!(
            began.elapsed() < SOON,
            "another address is not served after {SOON:?}\n{}",
            site.program.output()
        );
        sleep(Duration::from_millis(50)).await;
    }
    drop(held);
    Ok(())
}
