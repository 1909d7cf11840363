//! Misbehaving clients, which do not affect others.

use std::time::Duration;

use e2e::simenvoy::{CLUSTER, DeltaClient, ENDPOINTS, SCOPE, SECRET, SotwClient, unix_channel};
use e2e_inside::served::Served;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::route::v3::ScopedRouteConfiguration;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use envoy_types::pb::google::rpc::Status;
use tonic::Code;
use xds::{Kind, Limits, Resource};

async fn client(served: &Served, node: &str) -> DeltaClient {
    let channel = unix_channel(served.socket()).await.expect("connects");
    DeltaClient::open(channel, node).await.expect("opens")
}

fn cluster(name: &str, value: &str) -> Resource {
    Resource::new(
        name,
        &Cluster {
            name: name.into(),
            alt_stat_name: value.into(),
            ..Default::default()
        },
    )
}

fn secret(name: &str, value: &str) -> Resource {
    Resource::new(
        name,
        &Secret {
            name: value.into(),
            ..Default::default()
        },
    )
}

fn scope(name: &str, value: &str) -> Resource {
    Resource::new(
        name,
        &ScopedRouteConfiguration {
            name: value.into(),
            ..Default::default()
        },
    )
}

#[tokio::test]
async fn a_client_that_never_answers_and_one_that_refuses_all_delay_nobody() {
    let mut world = Served::start(Limits::default());
    world.publish(
        (0..20).map(|i| cluster(&format!("c{i}"), "0")).collect(),
        vec![],
    );
    let mut silent = client(&world, "silent").await;
    silent.subscribe(CLUSTER, &[]).await.expect("sent");
    silent.receive().await.expect("the first response");
    let mut grumpy = client(&world, "grumpy").await;
    grumpy.judge(Box::new(|_, name, _| Err(format!("no {name}"))));
    grumpy.subscribe(CLUSTER, &[]).await.expect("sent");
    let mut good = client(&world, "good").await;
    good.subscribe(CLUSTER, &[]).await.expect("sent");

    let mut last = 0;
    for round in 1..=50 {
        last = world.publish(vec![cluster("c3", &round.to_string())], vec![]);
        let version = world
            .cache
            .get(&world.view, Kind::Cluster, "c3")
            .expect("published")
            .version()
            .to_owned();
        good.run_until(|c| c.held(CLUSTER).versions.get("c3") == Some(&version))
            .await
            .expect("served");
    }
    // The one that refuses has refused each of them alone, and gets none of them again.
    let mut changes = world.cache.watch(&world.view);
    let is_done = |progress: xds::Progress| {
        let grumpy = progress
            .nodes
            .iter()
            .any(|n| &*n.node == "grumpy" && n.acknowledged == last);
        progress.rejections.len() == 20 && grumpy
    };
    while !is_done(world.cache.progress(&world.view)) {
        tokio::select! {
            response = grumpy.receive() => {
                grumpy.answer(response.expect("tried again alone")).await.expect("answered");
            }
            changed = changes.changed() => changed.expect("the cache lives"),
        }
    }
    grumpy
        .settle(Duration::from_millis(300))
        .await
        .expect("no more");
    let progress = world.cache.progress(&world.view);
    assert_eq!(progress.rejections.len(), 20);
    assert!(progress.rejections.iter().all(|r| &*r.node == "grumpy"));
    let acknowledged: Vec<_> = progress
        .nodes
        .iter()
        .map(|n| (&*n.node, n.acknowledged == last))
        .collect();
    assert_eq!(
        acknowledged,
        [("good", true), ("grumpy", true), ("silent", false)]
    );
    // The silent client gets all that was published meanwhile in one response, once it answers.
    let first = silent.held(CLUSTER).responses;
    silent
        .request(DeltaDiscoveryRequest {
            type_url: CLUSTER.into(),
            response_nonce: "1".into(),
            ..Default::default()
        })
        .await
        .expect("sent");
    silent
        .run_until(|c| c.held(CLUSTER).responses > first)
        .await
        .expect("served");
    assert_eq!(
        silent.held(CLUSTER).resources,
        1,
        "fifty changes of one resource coalesced"
    );
    drop((silent, grumpy, good));
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_a_response_unanswered_too_long_is_let_go() {
    let mut world = Served::start(Limits {
        answer_within: Duration::from_millis(50),
        ..Default::default()
    });
    world.publish(vec![cluster("c", "0")], vec![]);
    let mut silent = client(&world, "silent").await;
    silent.subscribe(CLUSTER, &[]).await.expect("sent");
    silent.receive().await.expect("the first response");
    assert_eq!(
        silent.receive().await.expect_err("let go").code(),
        Code::DeadlineExceeded
    );
    world.stop().await;
}

#[tokio::test]
async fn floods_of_names_and_streams_end_at_their_limits() {
    let mut world = Served::start(Limits {
        names: 100,
        name_bytes: 64,
        streams_per_identity: 3,
        ..Default::default()
    });
    let many: Vec<String> = (0..101).map(|i| format!("n{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut flood = client(&world, "flood").await;
    flood.subscribe(ENDPOINTS, &many).await.expect("sent");
    assert_eq!(
        flood.receive().await.expect_err("too many at once").code(),
        Code::ResourceExhausted
    );
    let mut drip = client(&world, "drip").await;
    drip.subscribe(ENDPOINTS, &many[..60]).await.expect("sent");
    let response = drip.receive().await.expect("within the limit");
    assert_eq!(response.removed_resources.len(), 60);
    drip.answer(response).await.expect("answered");
    drip.subscribe(ENDPOINTS, &many[50..]).await.expect("sent");
    assert_eq!(
        drip.receive().await.expect_err("too many in all").code(),
        Code::ResourceExhausted
    );
    let mut long = client(&world, "long").await;
    long.subscribe(ENDPOINTS, &[&"x".repeat(65)])
        .await
        .expect("sent");
    assert_eq!(
        long.receive().await.expect_err("too long").code(),
        Code::ResourceExhausted
    );
    drop((flood, drip, long));

    let channel = unix_channel(world.socket()).await.expect("connects");
    let mut open = Vec::new();
    // The end of the streams above may take a moment to be noticed.
    while open.len() < 3 {
        if let Ok(client) = DeltaClient::open(channel.clone(), "many").await {
            open.push(client);
        }
        tokio::task::yield_now().await;
    }
    let refused = DeltaClient::open(channel.clone(), "many").await;
    assert_eq!(
        refused.err().expect("one too many").code(),
        Code::ResourceExhausted
    );
    drop(open);
    drop(channel);
    world.stop().await;
}

#[tokio::test]
async fn names_that_a_client_invents_have_a_limit_over_all_types_and_are_never_reported_as_refused()
{
    let mut world = Served::start(Limits {
        unknown_names_bytes: 50_000,
        ..Default::default()
    });
    world.publish(vec![cluster("c", "0")], vec![]);
    let mut heavy = client(&world, "heavy").await;
    let many = |kind: usize| {
        (0..100)
            .map(|number| format!("other/{kind}{number:060}"))
            .collect::<Vec<_>>()
    };
    let kinds = [Kind::Endpoints, Kind::Route, Kind::Cluster, Kind::Listener];
    for (at, kind) in kinds.into_iter().enumerate() {
        let names = many(at);
        heavy
            .subscribe(
                kind.type_url(),
                &names.iter().map(String::as_str).collect::<Vec<_>>(),
            )
            .await
            .expect("sent");
    }
    let ended = loop {
        if let Err(status) = heavy.receive().await {
            break status;
        }
    };
    assert_eq!(ended.code(), Code::ResourceExhausted);
    assert!(
        ended
            .message()
            .contains("on this stream; at most 50000 are allowed"),
        "{ended}"
    );

    let mut liar = client(&world, "liar").await;
    liar.subscribe(CLUSTER, &["c", "other/web:80"])
        .await
        .expect("sent");
    // First both in one response, then each in its own.
    for _ in 0..3 {
        let response = liar.receive().await.expect("served");
        let refusal = DeltaDiscoveryRequest {
            type_url: CLUSTER.into(),
            response_nonce: response.nonce,
            error_detail: Some(Status {
                code: 3,
                message: "other/web:80 is bad".into(),
                details: vec![],
            }),
            ..Default::default()
        };
        liar.request(refusal).await.expect("sent");
    }
    let progress = world
        .until("a refusal", |progress| !progress.rejections.is_empty())
        .await;
    let names: Vec<&str> = progress
        .rejections
        .iter()
        .map(|rejection| &*rejection.name)
        .collect();
    assert_eq!(names, ["c"]);
    drop((heavy, liar));
    world.stop().await;
}

#[tokio::test]
async fn on_demand_secrets_beyond_the_budget_are_taken_back_oldest_first() {
    let mut world = Served::start(Limits {
        on_demand_secrets: 32,
        ..Default::default()
    });
    world.publish(
        (0..40)
            .map(|i| secret(&format!("h{i}"), "0"))
            .chain([secret("sds/regular", "0")])
            .collect(),
        vec![],
    );
    let mut client = client(&world, "one").await;
    client
        .subscribe(SECRET, &["sds/regular"])
        .await
        .expect("sent");
    for i in 0..33 {
        let name = format!("h{i}");
        client.subscribe(SECRET, &[&name]).await.expect("sent");
        client
            .run_until(|c| c.held(SECRET).versions.contains_key(&name))
            .await
            .expect("served");
    }
    client
        .run_until(|c| c.held(SECRET).absent.len() == 3)
        .await
        .expect("taken back");
    let held = client.held(SECRET);
    assert_eq!(held.absent.iter().collect::<Vec<_>>(), ["h0", "h1", "h2"]);
    assert!(
        held.versions.contains_key("sds/regular"),
        "a regular secret is never taken back"
    );
    assert_eq!(world.cache.counts().of(Kind::Secret).evicted, 3);
    // The next handshake requests it again.
    client.subscribe(SECRET, &["h0"]).await.expect("sent");
    client
        .run_until(|c| c.held(SECRET).versions.contains_key("h0"))
        .await
        .expect("served");
    world.stop().await;
}

#[tokio::test]
async fn one_change_costs_the_same_beside_a_hundred_and_beside_ten_thousand() {
    let mut costs = Vec::new();
    for n in [100, 10_000] {
        let mut world = Served::start(Limits::default());
        world.publish(
            (0..n).map(|i| scope(&format!("s{i}"), "0")).collect(),
            vec![],
        );
        let mut client = client(&world, "one").await;
        client.subscribe(SCOPE, &[]).await.expect("sent");
        client
            .run_until(|c| c.held(SCOPE).versions.len() == n)
            .await
            .expect("served");
        let before = world.cache.counts();
        let generation = world.publish(vec![scope("s50", "1")], vec![]);
        let mut changes = world.cache.watch(&world.view);
        client
            .run_until(|c| c.held(SCOPE).resources == n + 1)
            .await
            .expect("served");
        while world.cache.progress(&world.view).acknowledged(generation) != (1, 1) {
            changes.changed().await.expect("the cache lives");
        }
        let after = world.cache.counts();
        let a = after.of(Kind::Scope);
        let b = before.of(Kind::Scope);
        costs.push((
            a.changed - b.changed,
            a.sent - b.sent,
            a.bytes - b.bytes,
            a.responses - b.responses,
        ));
        drop(client);
        world.stop().await;
    }
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0].0, 1, "one resource is sent");
    assert_eq!(costs[0].1, 1, "one response carries it");
    assert_eq!(costs[0].3, 1, "one client gets it");
}

#[tokio::test]
async fn a_state_of_the_world_client_gets_whole_states_and_keeps_the_good_one() {
    let mut world = Served::start(Limits::default());
    world.publish(vec![cluster("a", "0"), cluster("b", "0")], vec![]);
    let channel = unix_channel(world.socket()).await.expect("connects");
    let mut client = SotwClient::open(channel, "sotw").await.expect("opens");
    client.subscribe(CLUSTER, &[]).await.expect("sent");
    client.step(|_, _| Ok(())).await.expect("served");
    assert_eq!(client.held(CLUSTER).len(), 2);
    world.publish(vec![cluster("c", "0")], vec![]);
    let (_, response) = client.step(|_, _| Err("no".into())).await.expect("served");
    assert_eq!(response.resources.len(), 3);
    world.publish(vec![cluster("d", "0")], vec![]);
    let (_, response) = client.step(|_, _| Ok(())).await.expect("served");
    assert_eq!(response.resources.len(), 3, "a, b and d; c is held back");
    assert_eq!(
        world.cache.progress(&world.view).rejections[0]
            .name
            .as_ref(),
        "c"
    );
    drop(client);
    world.stop().await;
}
