//! Bodies that are collected and never end, of many clients, on a real Envoy with little memory: it
//! gives those up, and answers others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::probe::Probe;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::body_site::{BodySite, HOST, OTHER, forward, policy};

/// The bytes of a body that are collected.
const COLLECTED: usize = 1 << 20;
/// The clients: their bodies together are three times the heap.
const CLIENTS: u32 = 600;
/// The heap that the Envoy may have.
const HEAP: u64 = 200 << 20;
/// The time between the first bodies of two clients. The Envoy looks at its memory four times a
/// second, and has a tenth of the heap more by then.
const PACE: Duration = Duration::from_millis(10);
/// The time until a client whose body was given up sends another one.
const AGAIN: Duration = Duration::from_secs(1);
/// The requests of others that are answered meanwhile.
const ANSWERS: usize = 20;
/// Time limit of a wait on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

fn with_little_memory(bootstrap: &mut Value) {
    bootstrap["overload_manager"]["resource_monitors"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .filter_map(|monitor| monitor.pointer_mut("/typed_config/max_heap_size_bytes"))
        .for_each(|most| *most = json!(HEAP.to_string()));
}

/// Sends all but the last byte of a body that may be collected, again and again as its connection
/// is closed, and counts that.
async fn attack(at: SocketAddr, given_up: Arc<AtomicU32>) {
    let head = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("{:x}\r\n", COLLECTED - 1).into_bytes();
    let body = [chunk, vec![b'x'; COLLECTED - 1], b"\r\n".to_vec()].concat();
    loop {
        // A refused connection is tried again: the attack does not end while there is memory.
        if let Ok(mut stream) = TcpStream::connect(at).await {
            let sent = async {
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(&body).await?;
                stream.read(&mut [0; 1024]).await
            };
            if sent.await.is_ok() {
                given_up.fetch_add(1, Ordering::Relaxed);
            }
        }
        sleep(AGAIN).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn bodies_that_never_end_take_no_more_than_the_heap() -> Result<()> {
    let limit = json!({"maxBytes": COLLECTED, "buffer": "All"});
    let policies = vec![policy("app", "requestBody", limit)];
    let site = BodySite::start_edited(json!([forward()]), policies, with_little_memory).await?;
    let envoy = &site.world.envoy;
    let given_up = Arc::new(AtomicU32::new(0));
    let mut attackers = JoinSet::new();
    for client in 0..CLIENTS {
        let attack = attack(site.http, given_up.clone());
        attackers.spawn(async move {
            sleep(PACE * client).await;
            attack.await;
        });
    }
    let deadline = Instant::now() + LIMIT;
    let (mut most, mut answered) = (0, 0);
    // Each client is given up once in the mean, and others are answered.
    while answered < ANSWERS || given_up.load(Ordering::Relaxed) < CLIENTS {
        most = most.max(envoy.resident()?);
        let answer = Probe::http(site.http, OTHER).send().await;
        answered += usize::from(answer.is_ok_and(|answer| answer.status == 200));
        ensure!(
            Instant::now() < deadline,
            "{answered} requests of others are answered, {given_up:?} bodies given up\n{}",
            envoy.log()
        );
    }
    ensure!(most > HEAP / 2, "Envoy had {} MiB: no attack", most >> 20);
    // Beside the heap there are the program itself, pages that it has not returned, and what came
    // before it looked.
    ensure!(most < 2 * HEAP, "Envoy had {} MiB", most >> 20);
    drop(attackers);
    Ok(())
}
