//! Envoy serves requests throughout failures of the control plane: the API server is killed and
//! comes back, the leader is killed in the middle of a burst, and no controller runs for a while.
//! No request fails.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{Cluster, is_true};
use e2e::probe::Probe;
use kube::api::Patch;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::edge::{edge, route, until_answers};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const HOST: &str = "web.example.org";
const LIMIT: Duration = Duration::from_secs(180);

/// Clients that send requests continuously, on new connections and on a persistent one.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    asking: JoinSet<Vec<String>>,
}

impl Traffic {
    /// Starts clients of a host over TLS.
    pub(crate) fn start(address: SocketAddr, host: &'static str) -> Self {
        Self::start_with(address, host, Duration::from_millis(5))
    }

    /// Starts clients that pause for so long after each answer.
    pub(crate) fn start_with(address: SocketAddr, host: &'static str, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let mut asking = JoinSet::new();
        for kept in [false, true] {
            let (stop, answered) = (stop.clone(), answered.clone());
            asking.spawn(async move {
                let probe = Probe::https(address, host);
                let mut failed = Vec::new();
                let mut connection = None;
                while !stop.load(Ordering::Relaxed) {
                    let answer = if kept {
                        let open = match connection.take() {
                            Some(open) => Ok(open),
                            None => probe.connect().await,
                        };
                        match open {
                            Ok(mut open) => {
                                let answer = open.ask(&probe).await;
                                connection = Some(open).filter(|open| !open.is_closed());
                                answer
                            }
                            Err(error) => Err(error),
                        }
                    } else {
                        probe.send().await
                    };
                    match answer {
                        Ok(answer) if answer.status == 200 => {
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(answer) => failed.push(format!("kept {kept}: {}", answer.status)),
                        Err(error) => failed.push(format!("kept {kept}: {error}")),
                    }
                    sleep(pause).await;
                }
                failed
            });
        }
        Self {
            stop,
            answered,
            asking,
        }
    }

    /// Waits for more answers, which proves that requests are answered in the current state.
    pub(crate) async fn some_more(&self) -> Result<()> {
        let before = self.answered.load(Ordering::Relaxed);
        let deadline = Instant::now() + LIMIT;
        while self.answered.load(Ordering::Relaxed) < before + 50 {
            ensure!(Instant::now() < deadline, "no answers any more");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Ends it and returns the failures.
    pub(crate) async fn end(mut self) -> Result<Vec<String>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut failed = Vec::new();
        while let Some(ended) = self.asking.join_next().await {
            failed.extend(ended?);
        }
        Ok(failed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn no_request_fails_while_servers_and_leaders_die() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let (_echo, address) = edge(&cluster).await?;
    cluster.server.put(route("web", HOST)).await?;
    let mut one = cluster.controller("one")?;
    one.line("holding the lease").await?;
    // It is killed when dropped.
    let mut one = Some(one);
    let (mut envoy, _tls) = cluster.envoy("envoy-a").await?;
    envoy.ready().await?;
    let mut two = cluster.replica("two")?;
    two.line("the view is complete").await?;
    until_answers(address, HOST, 200).await?;
    let traffic = Traffic::start(address, HOST);

    // The API server is down, and comes back; changes made meanwhile are served then.
    cluster.server.kill();
    traffic.some_more().await?;
    cluster.server.resume().await?;
    cluster
        .server
        .put(route("back", "back.example.org"))
        .await?;
    until_answers(address, "back.example.org", 200).await?;

    // The leader, to which the Envoy is connected, is killed in the middle of a burst.
    for number in 0..20 {
        cluster
            .server
            .put(route(
                &format!("burst-{number}"),
                &format!("b{number}.example.org"),
            ))
            .await?;
        if number == 10 {
            drop(one.take());
        }
    }
    two.line("holding the lease").await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "default", "burst-19", |o| {
            is_true(&o["status"]["parents"][0], "Accepted")
        })
        .await?;
    traffic.some_more().await?;

    // No controller runs; then one at the address that the Envoy connects to.
    drop(two);
    let routes = cluster.server.api(GATEWAY, "HTTPRoute", "default").await?;
    let renamed = json!({"spec": {"hostnames": ["renamed.example.org"]}});
    routes
        .patch("burst-0", &Default::default(), &Patch::Merge(&renamed))
        .await?;
    traffic.some_more().await?;
    let mut three = cluster.controller("three")?;
    three.line("holding the lease").await?;
    for host in ["renamed.example.org", "b19.example.org"] {
        until_answers(address, host, 200).await?;
    }
    let gone = Probe::https(address, "b0.example.org")
        .send()
        .await
        .context("the connection is taken")?;
    assert_eq!(gone.status, 404, "what is gone is not served");
    let answered = traffic.answered.load(Ordering::Relaxed);
    assert_eq!(
        traffic.end().await?,
        Vec::<String>::new(),
        "of {answered} others none failed"
    );
    Ok(())
}
