//! Clusters that Envoy warms: it acknowledges no response of clusters while it waits for the
//! assignment of one, and does not request an assignment that it has subscribed to already.

use std::time::Duration;

use e2e_inside::resources::*;
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, cluster};
use envoy_types::pb::google::protobuf;
use tokio::time::Instant;
use xds::{Cache, Generation, Kind, Resource};

use super::client::{Envoy, Served};

/// Far below the 15 seconds after which Envoy gives up waiting for an assignment.
const SOON: Duration = Duration::from_secs(5);

/// A cluster with this assignment; `seconds` is its connect time-out, which makes it a different
/// version.
fn warming(name: &str, assignment: &str, seconds: i64) -> Resource {
    let config = cluster::EdsClusterConfig {
        eds_config: Some(ads()),
        service_name: assignment.into(),
    };
    let eds = cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds.into());
    let connect_timeout = protobuf::Duration { seconds, nanos: 0 };
    Resource::new(
        name,
        &Cluster {
            name: name.into(),
            cluster_discovery_type: Some(eds),
            eds_cluster_config: Some(config),
            connect_timeout: Some(connect_timeout),
            ..Default::default()
        },
    )
}

async fn soon(fleet: &Served, generation: Generation, what: &str) {
    let began = Instant::now();
    fleet.live(generation, 1).await;
    assert!(began.elapsed() < SOON, "{what} took {:?}", began.elapsed());
}

async fn clusters_are_warm_at_once(api_type: &str) {
    let mut fleet = Served::default();
    let _envoy = Envoy::start(fleet.dir(), "one", &fleet.socket(), api_type);
    let generation = fleet.publish(
        vec![warming("a", "shared", 1), endpoints("shared", 1)],
        vec![],
    );
    soon(&fleet, generation, "the first cluster").await;

    let generation = fleet.publish(vec![warming("b", "shared", 1)], vec![]);
    soon(
        &fleet,
        generation,
        "a second cluster with the same assignment",
    )
    .await;

    let generation = fleet.publish(vec![warming("a", "shared", 2)], vec![]);
    soon(&fleet, generation, "a changed cluster").await;

    let generation = fleet.publish(
        vec![warming("c", "shared", 1)],
        vec![(Kind::Cluster, "b".into())],
    );
    soon(&fleet, generation, "one cluster in place of another").await;

    // The assignment is unchanged, as the client reports; the clusters are not.
    fleet.stop().await;
    fleet.cache = Cache::new();
    let changed = vec![
        warming("a", "shared", 3),
        warming("c", "shared", 3),
        warming("d", "shared", 3),
    ];
    let generation = fleet.publish([changed, vec![endpoints("shared", 1)]].concat(), vec![]);
    fleet.serve();
    soon(&fleet, generation, "changed clusters of another server").await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn clusters_are_warm_at_once_over_delta() {
    clusters_are_warm_at_once("DELTA_GRPC").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn clusters_are_warm_at_once_over_state_of_the_world() {
    clusters_are_warm_at_once("GRPC").await;
}
