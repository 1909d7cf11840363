//! Networks that fail at the worst moment, clients that are too fast, and a server that shuts down.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use e2e::simenvoy::{CLUSTER, DeltaClient, ENDPOINTS, LISTENER, ROUTE, SotwClient, unix_channel};
use e2e_inside::served::Served;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tonic::Code;
use xds::{Kind, Limits, Resource};

/// A proxy between a client and the server that passes on a number of bytes, both directions
/// counted together.
struct Proxy {
    path: PathBuf,
    left: Arc<AtomicUsize>,
    cut: Arc<Notify>,
    accepting: tokio::task::JoinHandle<()>,
}

/// The fault that follows.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// The connection closes.
    Close,
    /// It stays open, and nothing passes any more.
    Silence,
}

impl Proxy {
    fn start(path: PathBuf, server: &Path, bytes: usize, then: Then) -> Proxy {
        let listener = UnixListener::bind(&path).expect("a socket");
        let left = Arc::new(AtomicUsize::new(bytes));
        let cut = Arc::new(Notify::new());
        let (server, allowance, over) = (server.to_owned(), left.clone(), cut.clone());
        let accepting = tokio::spawn(async move {
            let (client, _) = listener.accept().await.expect("a client");
            let server = UnixStream::connect(server)
                .await
                .expect("the server listens");
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let up = allowance.clone();
            let down = allowance;
            tokio::select! {
                () = pass(&mut from_client, &mut to_server, up) => {}
                () = pass(&mut from_server, &mut to_client, down) => {}
            }
            over.notify_one();
            if then == Then::Silence {
                std::future::pending::<()>().await;
            }
        });
        Proxy {
            path,
            left,
            cut,
            accepting,
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        std::fs::remove_file(&self.path).expect("ours");
    }
}

/// Copies until an end closes or no bytes are left.
async fn pass(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    left: Arc<AtomicUsize>,
) {
    let mut buffer = [0; 4096];
    loop {
        let Ok(read) = from.read(&mut buffer).await else {
            return;
        };
        let mut passed = 0;
        let took = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            passed = left.min(read);
            Some(left - passed)
        });
        if read == 0
            || took.is_err()
            || to.write_all(&buffer[..passed]).await.is_err()
            || passed < read
        {
            return;
        }
    }
}

fn view(round: usize) -> Vec<Resource> {
    let text = |what: &str| format!("{what}-{round}");
    (0..3)
        .flat_map(|i| {
            let name = format!("c{i}");
            let cluster = Cluster {
                name: name.clone(),
                alt_stat_name: text("cluster"),
                ..Default::default()
            };
            let endpoints = ClusterLoadAssignment {
                cluster_name: text("endpoints"),
                ..Default::default()
            };
            [
                Resource::new(name.as_str(), &cluster),
                Resource::new(name.as_str(), &endpoints),
            ]
        })
        .chain([
            Resource::new(
                "r",
                &RouteConfiguration {
                    name: text("routes"),
                    ..Default::default()
                },
            ),
            Resource::new(
                "l",
                &Listener {
                    stat_prefix: text("listener"),
                    ..Default::default()
                },
            ),
        ])
        .collect()
}

const KINDS: [Kind; 4] = [Kind::Cluster, Kind::Endpoints, Kind::Route, Kind::Listener];

async fn ask(client: &mut DeltaClient) -> Result<(), tonic::Status> {
    client.subscribe(CLUSTER, &[]).await?;
    client.subscribe(LISTENER, &[]).await?;
    client.subscribe(ENDPOINTS, &["c0", "c1", "c2"]).await?;
    client.subscribe(ROUTE, &["r"]).await
}

fn holds(client: &DeltaClient, resources: &[Resource]) -> bool {
    KINDS.into_iter().all(|kind| {
        let wanted: BTreeMap<_, _> = resources
            .iter()
            .filter(|r| r.kind() == kind)
            .map(|r| (r.name().to_owned(), r.version().to_owned()))
            .collect();
        client.held(kind.type_url()).versions == wanted
    })
}

#[tokio::test]
async fn a_stream_cut_at_any_byte_of_an_exchange_is_taken_up_by_the_next() {
    let mut served = Served::start(Limits::default());
    served.publish(view(0), vec![]);
    let front = served.dir().join("proxy.sock");
    let plenty = usize::MAX;

    // Counts the bytes of the whole exchange: a client with the resources of round 0 connects and
    // gets those of round 1.
    let mut first = DeltaClient::open(
        unix_channel(served.socket()).await.expect("connects"),
        "one",
    )
    .await
    .expect("opens");
    ask(&mut first).await.expect("sent");
    first
        .run_until(|c| holds(c, &view(0)))
        .await
        .expect("served");
    let mut held = first.close();
    let mut current = view(1);
    served.publish(view(1), vec![]);
    let whole = {
        let proxy = Proxy::start(front.clone(), &served.socket(), plenty, Then::Close);
        let channel = unix_channel(&front).await.expect("connects");
        let mut client = DeltaClient::open(channel, "one").await.expect("opens");
        client.inherit(&held);
        ask(&mut client).await.expect("sent");
        client
            .run_until(|c| holds(c, &current))
            .await
            .expect("served");
        held = client.close();
        plenty - proxy.left.load(Ordering::SeqCst)
    };
    assert!(whole > 1000, "{whole}");

    let mut partly = 0;
    for (round, at) in (0..whole).step_by(23).enumerate() {
        current = view(round + 2);
        let generation = served.publish(view(round + 2), vec![]);
        let proxy = Proxy::start(front.clone(), &served.socket(), at, Then::Close);
        let before = held;
        let mut cut = None;
        // Up to the fault; the connection itself may fail.
        if let Ok(channel) = unix_channel(&front).await {
            let exchange = async {
                let mut client = DeltaClient::open(channel, "one").await.ok()?;
                client.inherit(&before);
                ask(&mut client).await.ok()?;
                while let Ok(response) = client.receive().await {
                    if client.answer(response).await.is_err() {
                        break;
                    }
                }
                Some(client.close())
            };
            cut = exchange.await;
        }
        drop(proxy);
        let before = cut.unwrap_or(before);
        let versions: BTreeSet<_> = before
            .values()
            .flat_map(|held| held.versions.values())
            .collect();
        let missing = current
            .iter()
            .filter(|r| !versions.contains(&r.version().to_owned()))
            .count();
        partly += usize::from(missing > 0 && missing < current.len());

        let channel = unix_channel(served.socket()).await.expect("connects");
        let mut client = DeltaClient::open(channel, "one").await.expect("opens");
        client.inherit(&before);
        ask(&mut client).await.expect("sent");
        let all = async { client.run_until(|c| holds(c, &current)).await };
        all.await
            .unwrap_or_else(|e| panic!("cut after {at} bytes: {e}"));
        served.live(generation, 1).await;
        let received: usize = KINDS
            .into_iter()
            .map(|kind| client.counted(kind.type_url()))
            .sum();
        assert_eq!(
            received, missing,
            "cut after {at} bytes: only what was missing is sent"
        );
        held = client.close();
    }
    assert!(
        partly > 5,
        "the exchange was cut in its middle {partly} times"
    );
    served.stop().await;
}

#[tokio::test]
async fn a_connection_that_fell_silent_is_noticed() {
    let mut served = Served::start(Limits {
        keepalive: Duration::from_secs(1),
        ..Default::default()
    });
    served.publish(view(0), vec![]);
    let front = served.dir().join("proxy.sock");
    let proxy = Proxy::start(front.clone(), &served.socket(), 100_000, Then::Silence);
    let mut client = DeltaClient::open(unix_channel(&front).await.expect("connects"), "one")
        .await
        .expect("opens");
    ask(&mut client).await.expect("sent");
    client
        .run_until(|c| holds(c, &view(0)))
        .await
        .expect("served");
    served
        .until("the client is there", |p| p.nodes.len() == 1)
        .await;
    proxy.left.store(0, Ordering::SeqCst);
    proxy.cut.notified().await;
    served
        .until("the client is gone", |p| p.nodes.is_empty())
        .await;
    drop(client);
    served.stop().await;
}

#[tokio::test]
async fn a_client_that_asks_too_fast_is_read_slowly_and_delays_nobody() {
    let mut served = Served::start(Limits {
        request_burst: 10,
        requests_per_second: 20,
        ..Default::default()
    });
    served.publish(view(0), vec![]);
    let open = async |node: &str| {
        let channel = unix_channel(served.socket()).await.expect("connects");
        DeltaClient::open(channel, node).await.expect("opens")
    };
    let start = Instant::now();
    let mut flood = open("flood").await;
    for i in 0..60 {
        flood
            .subscribe(ENDPOINTS, &[&format!("n{i}")])
            .await
            .expect("buffered");
    }
    let mut good = open("good").await;
    ask(&mut good).await.expect("sent");
    good.run_until(|c| holds(c, &view(0)))
        .await
        .expect("served");
    // Without any answer, the flood gets one response; the subscription shows how much of it was
    // read.
    let read = |served: &Served| {
        let streams = served.cache.debug().remove(0).streams;
        let flood = streams
            .into_iter()
            .find(|s| &*s.node == "flood")
            .expect("connected");
        flood.subscriptions.first().map_or(0, |s| s.names)
    };
    loop {
        let names = read(&served);
        let elapsed = start.elapsed().as_secs_f64();
        assert!(
            names as f64 <= 10.0 + 20.0 * elapsed + 1.0,
            "{names} requests were read in {elapsed} s"
        );
        if names == 60 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop((flood, good));
    served.stop().await;
}

#[tokio::test]
async fn changes_that_come_too_fast_travel_together_and_none_is_lost() {
    let mut served = Served::start(Limits {
        push_burst: 2,
        pushes_per_second: 5,
        ..Default::default()
    });
    served.publish(view(0), vec![]);
    let channel = unix_channel(served.socket()).await.expect("connects");
    let mut client = DeltaClient::open(channel, "one").await.expect("opens");
    ask(&mut client).await.expect("sent");
    client
        .run_until(|c| holds(c, &view(0)))
        .await
        .expect("served");
    let endpoints = |round: usize| {
        let message = ClusterLoadAssignment {
            cluster_name: format!("round {round}"),
            ..Default::default()
        };
        Resource::new("c1", &message)
    };
    let pushes = |served: &Served| served.cache.counts().of(Kind::Endpoints).responses;
    let before = pushes(&served);
    let start = Instant::now();
    for round in 0..50 {
        served.publish(vec![endpoints(round)], vec![]);
        let settled =
            client.run_until(|c| c.held(ENDPOINTS).versions["c1"] == endpoints(round).version());
        // A client that is ready for each before the next: without a rate limit each would be sent
        // alone.
        let _not_yet = tokio::time::timeout(Duration::from_millis(20), settled).await;
    }
    let last = endpoints(49);
    client
        .run_until(|c| c.held(ENDPOINTS).versions["c1"] == last.version())
        .await
        .expect("served");
    let (pushes, elapsed) = (pushes(&served) - before, start.elapsed().as_secs_f64());
    assert!(
        pushes as f64 <= 2.0 + 5.0 * elapsed + 1.0,
        "{pushes} pushes in {elapsed} s"
    );
    drop(client);
    served.stop().await;
}

#[tokio::test]
async fn a_server_that_goes_says_so_and_waits_for_nobody_for_ever() {
    let mut served = Served::start(Limits {
        drain: Duration::from_millis(200),
        ..Default::default()
    });
    served.publish(view(0), vec![]);
    let channel = async || unix_channel(served.socket()).await.expect("connects");
    let mut delta = DeltaClient::open(channel().await, "delta")
        .await
        .expect("opens");
    ask(&mut delta).await.expect("sent");
    delta
        .run_until(|c| holds(c, &view(0)))
        .await
        .expect("served");
    let mut sotw = SotwClient::open(channel().await, "sotw")
        .await
        .expect("opens");
    sotw.subscribe(CLUSTER, &[]).await.expect("sent");
    sotw.step(|_, _| Ok(())).await.expect("served");
    let mut silent = DeltaClient::open(channel().await, "silent")
        .await
        .expect("opens");
    silent.subscribe(CLUSTER, &[]).await.expect("sent");
    silent.receive().await.expect("the first response");
    // A connection without any request.
    let mute = UnixStream::connect(served.socket())
        .await
        .expect("connects");

    served.stop().await;
    assert_eq!(
        delta.receive().await.expect_err("the server goes").code(),
        Code::Unavailable
    );
    assert_eq!(
        sotw.step(|_, _| Ok(()))
            .await
            .expect_err("the server goes")
            .code(),
        Code::Unavailable
    );
    assert_eq!(
        silent.receive().await.expect_err("the server goes").code(),
        Code::Unavailable
    );
    assert!(
        unix_channel(served.socket()).await.is_err(),
        "nobody listens any more"
    );
    assert!(
        served.cache.progress(&served.view).nodes.is_empty(),
        "and nobody is counted"
    );
    drop(mute);
}
