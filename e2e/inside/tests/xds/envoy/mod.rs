//! Tests of the xDS server with a real Envoy.

mod client;
mod crowd;
mod drained;
mod evicted;
mod example;
mod extension_configs;
mod killed;
mod on_demand;
mod secured;
mod virtual_hosts;
mod warming;

use self::client::*;
use e2e_inside::resources::*;

use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use xds::{Cache, Kind, Resource};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_route_through_an_eds_cluster_is_live_when_acknowledged_and_goes_again() {
    let mut fleet = Served::default();
    let front = free_port();
    let back = free_port();
    let envoy = Envoy::of(&fleet, "one");
    // The backend is a second listener of the same Envoy.
    let generation = fleet.publish(
        vec![
            eds_cluster("web"),
            endpoints("web", back),
            Resource::new("front", &routes("front", vec![forward("web")])),
            http_listener("front", front, rds("front")),
            http_listener(
                "back",
                back,
                hcm::http_connection_manager::RouteSpecifier::RouteConfig(routes(
                    "back",
                    vec![respond(prefix(), 204)],
                )),
            ),
        ],
        vec![],
    );
    fleet.live(generation, 1).await;
    assert_eq!(status(front, ""), 204);
    assert!(fleet.cache.progress(&fleet.view).rejections.is_empty());

    let generation = fleet.publish(
        vec![Resource::new(
            "front",
            &routes("front", vec![respond(prefix(), 418)]),
        )],
        vec![],
    );
    fleet.live(generation, 1).await;
    assert_eq!(status(front, ""), 418);

    // A restart of the server resends nothing.
    let before = fleet.cache.counts();
    fleet.stop().await;
    fleet.serve();
    fleet.live(generation, 1).await;
    let after = fleet.cache.counts();
    let sent = |counts: &xds::Counts| counts.kinds.iter().map(|k| k.sent).sum::<u64>();
    assert_eq!(
        sent(&after),
        sent(&before),
        "resources resent after a reconnect"
    );

    let generation = fleet.publish(
        vec![],
        vec![
            (Kind::Listener, "front".into()),
            (Kind::Route, "front".into()),
            (Kind::Cluster, "web".into()),
            (Kind::Endpoints, "web".into()),
        ],
    );
    fleet.live(generation, 1).await;
    assert!(
        !envoy.admin("/clusters").contains("web::"),
        "the cluster is gone"
    );
    assert!(
        !envoy.admin("/listeners").contains("front"),
        "the listener is gone"
    );
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_bad_cluster_among_a_hundred_is_held_back_alone_and_heals() {
    let mut fleet = Served::default();
    let mut events = fleet.cache.events();
    let envoy = Envoy::of(&fleet, "one");
    let mut clusters: Vec<_> = (0..99)
        .flat_map(|i| {
            [
                eds_cluster(&format!("c{i}")),
                endpoints(&format!("c{i}"), 1),
            ]
        })
        .collect();
    clusters.push(bad_cluster("culprit"));
    let generation = fleet.publish(clusters, vec![]);
    let found = rejection(&mut events).await;
    assert_eq!(
        found.kind,
        Kind::Cluster,
        "the refused resource is a cluster"
    );
    assert_eq!(&*found.name, "culprit", "it is the culprit");
    assert_eq!(&*found.node, "one", "the Envoy that refused it is named");
    assert!(found.text.contains("EDS config"), "{}", found.text);
    fleet.live(generation, 1).await;
    assert_eq!(
        envoy.stat("cluster_manager.active_clusters"),
        100,
        "99 and the server's own"
    );

    let generation = fleet.publish(
        vec![eds_cluster("culprit"), endpoints("culprit", 1)],
        vec![],
    );
    assert_eq!(&*recovery(&mut events).await.name, "culprit");
    fleet.live(generation, 1).await;
    assert_eq!(envoy.stat("cluster_manager.active_clusters"), 101);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_bad_scope_among_a_hundred_keeps_its_last_good_version() {
    let mut fleet = Served::default();
    let mut events = fleet.cache.events();
    let port = free_port();
    let _envoy = Envoy::of(&fleet, "one");
    let mut resources: Vec<_> = (0..100)
        .map(|i| scope(&format!("s{i}"), prefix()))
        .collect();
    resources.push(http_listener("front", port, scoped()));
    let generation = fleet.publish(resources, vec![]);
    fleet.live(generation, 1).await;
    assert_eq!(status(port, "x-key: s7\r\n"), 200);

    // All change, one to a value that Envoy refuses.
    let changed = (0..100).map(|i| {
        if i == 7 {
            scope("s7", regex("("))
        } else {
            scope(&format!("s{i}"), regex("/[a-z]?"))
        }
    });
    let generation = fleet.publish(changed.chain([scope("new", prefix())]).collect(), vec![]);
    let found = rejection(&mut events).await;
    assert!(found.text.contains("missing )"), "{}", found.text);
    assert_eq!(found.kind, Kind::Scope, "the refused resource is a scope");
    assert_eq!(&*found.name, "s7", "it is the culprit");
    fleet.live(generation, 1).await;
    assert_eq!(
        status(port, "x-key: s7\r\n"),
        200,
        "the culprit serves its last good version"
    );
    assert_eq!(status(port, "x-key: new\r\n"), 200, "the others are live");
    assert_eq!(fleet.cache.progress(&fleet.view).rejections.len(), 1);

    let generation = fleet.publish(vec![scope("s7", regex("/.*"))], vec![]);
    assert_eq!(&*recovery(&mut events).await.name, "s7");
    fleet.live(generation, 1).await;
    assert!(fleet.cache.progress(&fleet.view).rejections.is_empty());
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_bad_secret_among_a_hundred_is_held_back_alone() {
    let mut fleet = Served::default();
    let mut events = fleet.cache.events();
    let port = free_port();
    let envoy = Envoy::of(&fleet, "one");
    let pair =
        |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let names: Vec<String> = (0..100).map(|i| format!("sds/test/s{i}")).collect();
    let other = pair("other");
    let mut resources: Vec<_> = names
        .iter()
        .map(|name| {
            let made = pair("host.test");
            // The culprit's key does not match its certificate.
            let key = if name.ends_with("/s42") {
                other.signing_key.serialize_pem()
            } else {
                made.signing_key.serialize_pem()
            };
            secret(name, &made.cert.pem(), &key)
        })
        .collect();
    resources.push(tls_listener("front", port, &names));
    let generation = fleet.publish(resources, vec![]);
    let found = rejection(&mut events).await;
    assert!(found.text.contains("KEY_VALUES_MISMATCH"), "{}", found.text);
    assert_eq!(found.kind, Kind::Secret, "the refused resource is a secret");
    assert_eq!(&*found.name, "sds/test/s42", "it is the culprit");
    fleet.live(generation, 1).await;
    assert_eq!(fleet.cache.progress(&fleet.view).rejections.len(), 1);
    let dump = envoy.admin("/config_dump?resource=dynamic_active_secrets&mask=name");
    for name in names.iter().filter(|n| !n.ends_with("/s42")) {
        assert!(
            dump.contains(&format!("\"{name}\"")),
            "{name} is not active in {dump}"
        );
    }

    let made = pair("host.test");
    let generation = fleet.publish(
        vec![secret(
            "sds/test/s42",
            &made.cert.pem(),
            &made.signing_key.serialize_pem(),
        )],
        vec![],
    );
    assert_eq!(&*recovery(&mut events).await.name, "sds/test/s42");
    fleet.live(generation, 1).await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_state_of_the_world_envoy_is_served_and_a_bad_cluster_is_held_back() {
    let mut fleet = Served::default();
    let mut events = fleet.cache.events();
    let port = free_port();
    let envoy = Envoy::start(fleet.dir(), "sotw", &fleet.socket(), "GRPC");
    let mut resources: Vec<_> = (0..20)
        .flat_map(|i| {
            [
                eds_cluster(&format!("c{i}")),
                endpoints(&format!("c{i}"), 1),
            ]
        })
        .collect();
    resources.push(bad_cluster("culprit"));
    resources.push(Resource::new(
        "front",
        &routes("front", vec![respond(prefix(), 204)]),
    ));
    resources.push(http_listener("front", port, rds("front")));
    let generation = fleet.publish(resources, vec![]);
    assert_eq!(&*rejection(&mut events).await.name, "culprit");
    fleet.live(generation, 1).await;
    assert_eq!(status(port, ""), 204);
    assert_eq!(envoy.stat("cluster_manager.active_clusters"), 21);
    let generation = fleet.publish(
        vec![Resource::new(
            "front",
            &routes("front", vec![respond(prefix(), 418)]),
        )],
        vec![(Kind::Cluster, "c3".into())],
    );
    fleet.live(generation, 1).await;
    assert_eq!(status(port, ""), 418);
    assert_eq!(envoy.stat("cluster_manager.active_clusters"), 20);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_server_that_lost_its_memory_resends_nothing() {
    let mut fleet = Served::default();
    let port = free_port();
    let _envoy = Envoy::of(&fleet, "one");
    let resources = || {
        let mut resources: Vec<_> = (0..10_000)
            .map(|i| scope(&format!("s{i}"), prefix()))
            .collect();
        resources.push(http_listener("front", port, scoped()));
        resources
    };
    let generation = fleet.publish(resources(), vec![]);
    fleet.live(generation, 1).await;
    assert_eq!(status(port, "x-key: s9999\r\n"), 200);

    // No state is left on our side: a new cache, published again.
    fleet.stop().await;
    fleet.cache = Cache::new();
    let mut changed = resources();
    changed[17] = scope("s17", regex("/new.*"));
    let generation = fleet.publish(changed, vec![]);
    fleet.serve();
    fleet.live(generation, 1).await;
    let counts = fleet.cache.counts();
    assert_eq!(
        counts.kinds.iter().map(|k| k.sent).sum::<u64>(),
        1,
        "only what changed while we were away: {counts:?}"
    );
    assert_eq!(status(port, "x-key: s17\r\n"), 404);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_unfinished_exchange_is_finished_by_the_next_stream() {
    let mut fleet = Served::default();
    let port = free_port();
    let _envoy = Envoy::of(&fleet, "one");
    let publish = |fleet: &Served, round: u32| {
        let mut resources: Vec<_> = (0..50)
            .flat_map(|i| {
                [
                    eds_cluster(&format!("c{round}-{i}")),
                    endpoints(&format!("c{round}-{i}"), 1),
                ]
            })
            .collect();
        resources.push(Resource::new(
            "front",
            &routes("front", vec![respond(prefix(), 200 + round)]),
        ));
        resources.push(http_listener("front", port, rds("front")));
        let old = round.checked_sub(1).into_iter().flat_map(|r| {
            (0..50).flat_map(move |i| {
                [
                    (Kind::Cluster, format!("c{r}-{i}")),
                    (Kind::Endpoints, format!("c{r}-{i}")),
                ]
            })
        });
        fleet.publish(resources, old.collect())
    };
    // Each round is interrupted after a different number of responses.
    for round in 0..12 {
        let generation = publish(&fleet, round);
        let responses = |fleet: &Served| {
            fleet
                .cache
                .counts()
                .kinds
                .iter()
                .map(|k| k.responses)
                .sum::<u64>()
        };
        let start = responses(&fleet);
        while responses(&fleet) < start + u64::from(round)
            && fleet.cache.progress(&fleet.view).acknowledged(generation) != (1, 1)
        {
            tokio::task::yield_now().await;
        }
        fleet.stop().await;
        fleet.serve();
        fleet.live(generation, 1).await;
        assert_eq!(status(port, ""), 200 + u16::try_from(round).expect("small"));
    }
    fleet.stop().await;
}
