//! An Envoy among very many idle connections.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::client::*;
use e2e_inside::resources::*;
use e2e_inside::served::IDENTITY;
use xds::{Closed, Limits};

/// Connections of one process: a number beyond its limit of descriptors is spread over several.
const EACH: usize = 10_000;

/// Opens idle connections, and holds them until it is killed.
struct Crowd(Child);

impl Crowd {
    fn open(port: u16) -> Crowd {
        let mut process = Command::new(env!("CARGO_BIN_EXE_idle_connections"))
            .args([format!("127.0.0.1:{port}"), EACH.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was built with the tests");
        let mut line = String::new();
        let output = process.stdout.take().expect("piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it says when all are open");
        assert_eq!(line.trim(), EACH.to_string());
        Crowd(process)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn twenty_thousand_idle_connections_of_an_envoys_own_address_keep_it_out_for_no_time() {
    let mut served = Served::over_tls(Limits::default());
    let generation = served.publish(vec![eds_cluster("web"), endpoints("web", 1)], vec![]);
    let port = served.tls().port;
    let roots = served.tls().authority.certificate().to_owned();
    for node in ["before", "among"] {
        show(served.dir(), node, &served.tls().client(IDENTITY), &roots);
    }
    let started = Instant::now();
    let before = Envoy::over_tls(served.dir(), "before", port);
    served.live(generation, 1).await;
    let alone = started.elapsed();

    let (first, second) =
        tokio::task::spawn_blocking(move || (Crowd::open(port), Crowd::open(port)))
            .await
            .expect("open");
    let started = Instant::now();
    let among = Envoy::over_tls(served.dir(), "among", port);
    served.live(generation, 2).await;
    let took = started.elapsed();
    assert!(
        took < alone + Duration::from_secs(2),
        "{took:?}, and {alone:?} alone"
    );

    // The older stream was not disturbed, and only the permitted number of the crowd was kept.
    let changed = served.publish(vec![endpoints("web", 2)], vec![]);
    served.live(changed, 2).await;
    let at = Closed::ALL
        .iter()
        .position(|why| *why == Closed::Evicted)
        .expect("one of all");
    let counts = served.cache.counts();
    assert!(
        counts.closed[at] as usize >= 2 * EACH - Limits::default().idle_connections_per_address - 2,
        "{counts:?}"
    );
    assert_eq!(
        before.stat("cluster.xds.upstream_cx_total"),
        1,
        "it was never cut off"
    );
    drop((first, second, before, among));
    served.stop().await;
}
