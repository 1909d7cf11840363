//! Clients that share no code with this repository, so that server and client cannot share a
//! misreading: one on Google's gRPC in Python, and gRPC itself, which resolves `xds:///` names by
//! the state-of-the-world protocol.

mod channel;
mod python;

use std::collections::BTreeMap;

use self::python::Client;
use e2e_inside::served::Served;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use serde_json::json;
use xds::{Kind, Limits, Resource};

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

fn endpoints(name: &str) -> Resource {
    Resource::new(
        name,
        &ClusterLoadAssignment {
            cluster_name: name.into(),
            ..Default::default()
        },
    )
}

fn secret(name: &str) -> Resource {
    Resource::new(
        name,
        &Secret {
            name: name.into(),
            ..Default::default()
        },
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Python's grpcio"]
async fn a_foreign_incremental_client_holds_its_view_and_is_taken_at_its_word() {
    let mut served = Served::start(Limits::default());
    served.publish(
        vec![
            cluster("a", ""),
            cluster("b", ""),
            endpoints("x"),
            secret("host.test"),
        ],
        vec![],
    );
    let mut client = Client::start(&served, "delta", "snake");
    client.send(json!({"kind": "Cluster", "names": []}));
    client.until("Cluster", |held| held.keys().eq(["a", "b"]));

    // One of three is refused: the others arrive, and the rejection has the culprit's name and the
    // client's error.
    let generation = served.publish(
        vec![
            cluster("c", "refuse me"),
            cluster("d", ""),
            cluster("e", ""),
        ],
        vec![],
    );
    client.until("Cluster", |held| held.keys().eq(["a", "b", "d", "e"]));
    served.live(generation, 1).await;
    let rejections = served.cache.progress(&served.view).rejections;
    assert_eq!(rejections.len(), 1);
    assert_eq!(&*rejections[0].name, "c", "the refused resource is named");
    assert_eq!(&*rejections[0].node, "snake", "its client is named");
    assert_eq!(&*rejections[0].text, "python will not have c");
    let generation = served.publish(vec![cluster("c", "")], vec![(Kind::Cluster, "a".into())]);
    client.until("Cluster", |held| held.keys().eq(["b", "c", "d", "e"]));
    served.live(generation, 1).await;
    assert!(served.cache.progress(&served.view).rejections.is_empty());

    // Names: an existing resource is sent, a missing one is reported as removed, at once.
    client.send(json!({"kind": "ClusterLoadAssignment", "names": ["x", "missing"]}));
    let answer = client.until("ClusterLoadAssignment", |held| held.keys().eq(["x"]));
    assert_eq!(answer.came, vec!["x".to_owned()], "the resource comes");
    assert_eq!(
        answer.gone,
        vec!["missing".to_owned()],
        "the missing one is said to be gone"
    );
    client.send(json!({"kind": "Secret", "names": ["host.test", "Host.test", "*"]}));
    client.until("Secret", |held| held.keys().eq(["host.test"]));

    // Unsubscribing under a wildcard: the server answers with the resource's state.
    client.send(json!({"kind": "Cluster", "names": ["b"]}));
    let answer = client.until("Cluster", |held| held.len() == 4);
    assert_eq!(answer.came, ["b"]);
    client.send(json!({"kind": "Cluster", "drop": ["b"]}));
    let answer = client.until("Cluster", |held| held.len() == 4);
    assert_eq!(answer.came, ["b"]);

    // It disconnects and reconnects, and reports its resources to a server without any state of it.
    let holds = client.held("Cluster");
    client.stop();
    served.stop().await;
    served.serve();
    let sent = |served: &Served| served.cache.counts().of(Kind::Cluster).sent;
    let before = sent(&served);
    let mut client = Client::start(&served, "delta", "snake");
    let lost = holds
        .into_iter()
        .chain([("lost".to_owned(), "1".to_owned())])
        .collect::<BTreeMap<_, _>>();
    client.send(json!({"kind": "Cluster", "names": ["*"], "holds": lost}));
    let answer = client.next();
    assert!(answer.came.is_empty(), "nothing comes");
    assert_eq!(
        answer.gone,
        vec!["lost".to_owned()],
        "the lost resource is said to be gone"
    );
    served.publish(vec![cluster("d", "changed")], vec![]);
    let answer = client.next();
    assert_eq!(answer.came, ["d"]);
    assert_eq!(sent(&served), before + 1, "only what changed");
    client.stop();
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Python's grpcio"]
async fn a_foreign_state_of_the_world_client_holds_its_view_and_is_taken_at_its_word() {
    let mut served = Served::start(Limits::default());
    served.publish(
        vec![
            cluster("a", ""),
            cluster("b", ""),
            endpoints("x"),
            endpoints("y"),
        ],
        vec![],
    );
    let mut client = Client::start(&served, "sotw", "snake");
    client.send(json!({"kind": "Cluster", "names": []}));
    client.until("Cluster", |held| held.keys().eq(["a", "b"]));
    served.publish(vec![cluster("c", "refuse me"), cluster("d", "")], vec![]);
    client.until("Cluster", |held| held.keys().eq(["a", "b", "d"]));
    let progress = served
        .until("the culprit is found", |p| p.rejections.len() == 1)
        .await;
    assert_eq!(&*progress.rejections[0].name, "c");
    assert_eq!(&*progress.rejections[0].text, "python will not have c");
    let generation = served.publish(vec![cluster("c", "")], vec![(Kind::Cluster, "a".into())]);
    client.until("Cluster", |held| held.keys().eq(["b", "c", "d"]));
    served.live(generation, 1).await;
    assert!(served.cache.progress(&served.view).rejections.is_empty());

    // A growing list of names; only the new one need be sent.
    client.send(json!({"kind": "ClusterLoadAssignment", "names": ["x"]}));
    assert_eq!(client.next().came, ["x"]);
    client.send(json!({"kind": "ClusterLoadAssignment", "names": ["x", "y"]}));
    assert!(client.next().came.contains(&"y".to_owned()));

    // It reconnects with the version that it has: nothing is resent until something changes.
    let version = client.version("Cluster");
    client.stop();
    served.stop().await;
    served.serve();
    let mut client = Client::start(&served, "sotw", "snake");
    client.send(json!({"kind": "Cluster", "names": [], "version": version}));
    served.live(generation, 1).await;
    served.publish(vec![cluster("d", "changed")], vec![]);
    assert_eq!(client.next().came, ["b", "c", "d"], "the whole state, once");
    client.stop();
    served.stop().await;
}
