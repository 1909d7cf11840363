//! Tests of the order of responses, and of the state that a stream keeps.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, EdsClusterConfig,
};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;

use super::*;
use crate::wire::ErrorDetail;

mod memory;
mod names;
mod pages;
mod retries;
mod scopes;
mod secrets;
mod suspects;

/// A client that answers on request of the test.
struct Chat {
    tables: Tables,
    session: Session,
    generation: u64,
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

/// A cluster with endpoints by EDS.
fn warming(name: &str, assignment: &str, value: &str) -> Resource {
    let config = EdsClusterConfig {
        service_name: assignment.into(),
        ..Default::default()
    };
    let message = Cluster {
        name: name.into(),
        alt_stat_name: value.into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(config),
        ..Default::default()
    };
    Resource::new(name, &message)
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

/// A route configuration that references a cluster.
fn route(name: &str, cluster: &str) -> Resource {
    let hosts = vec![cluster.to_owned()];
    Resource::new(
        name,
        &RouteConfiguration {
            name: name.into(),
            internal_only_headers: hosts,
            ..Default::default()
        },
    )
}

fn listener(name: &str, value: &str) -> Resource {
    Resource::new(
        name,
        &Listener {
            name: name.into(),
            stat_prefix: value.into(),
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

/// The content of a response: kind, resources, removals.
type Said = (Kind, Vec<String>, Vec<String>);

impl Chat {
    fn new(limits: Limits, resources: Vec<Resource>) -> Chat {
        let mut tables = Tables::default();
        tables.apply(1, resources, &[], 0);
        Chat {
            tables,
            session: Session::new(Protocol::Delta, Arc::new(limits), 1),
            generation: 1,
        }
    }

    fn publish(&mut self, upserts: Vec<Resource>, removals: &[(Kind, &str)]) {
        self.generation += 1;
        let removals: Vec<_> = removals
            .iter()
            .map(|(kind, name)| (*kind, (*name).to_owned()))
            .collect();
        self.tables.apply(
            self.generation,
            upserts,
            &removals,
            self.session.forgettable(),
        );
    }

    fn send(&mut self, kind: Kind, request: DeltaRequest) {
        self.session
            .delta(kind, request, &self.tables, Instant::now())
            .expect("within the limits");
    }

    fn subscribe(&mut self, kind: Kind, names: &[&str]) {
        let subscribe = names.iter().map(|n| (*n).to_owned()).collect();
        self.send(
            kind,
            DeltaRequest {
                subscribe,
                ..Default::default()
            },
        );
    }

    /// Returns all responses that are sent before the next answer.
    fn read(&mut self) -> Vec<(u64, Said)> {
        let mut said = Vec::new();
        while let Some(out) = self.session.next(&self.tables, Instant::now(), || true) {
            for effect in self.session.take_effects() {
                if let Effect::Acknowledged(resources) = effect {
                    resources.iter().for_each(|r| self.tables.acknowledge(r));
                }
            }
            fn names(new: bool, out_items: &[Item]) -> Vec<String> {
                let of = out_items.iter().filter(|i| i.resource().is_some() == new);
                of.map(|i| i.name().to_string()).collect::<Vec<_>>()
            }
            said.push((
                out.nonce,
                (out.kind, names(true, &out.items), names(false, &out.items)),
            ));
        }
        for effect in self.session.take_effects() {
            if let Effect::Acknowledged(resources) = effect {
                resources.iter().for_each(|r| self.tables.acknowledge(r));
            }
        }
        said
    }

    fn answer(&mut self, kind: Kind, nonce: u64, refusal: Option<&str>) {
        let error_detail = refusal.map(|text| ErrorDetail {
            code: 3,
            message: text.into(),
        });
        self.send(
            kind,
            DeltaRequest {
                response_nonce: nonce.to_string(),
                error_detail,
                ..Default::default()
            },
        );
    }

    /// Acknowledges all responses until no more come; returns them in order, one line for those
    /// that came at once.
    fn settle(&mut self) -> Vec<Vec<Said>> {
        let mut all = Vec::new();
        loop {
            let said = self.read();
            if said.is_empty() {
                return all;
            }
            for (nonce, (kind, ..)) in &said {
                self.answer(*kind, *nonce, None);
            }
            all.push(said.into_iter().map(|(_, said)| said).collect());
        }
    }

    /// Makes a client that subscribed as Envoy does and has everything.
    fn settled(resources: Vec<Resource>) -> Chat {
        let mut chat = Chat::new(Limits::default(), resources);
        chat.subscribe(Kind::Cluster, &[]);
        chat.subscribe(Kind::Endpoints, &["c", "d"]);
        chat.subscribe(Kind::Listener, &[]);
        chat.subscribe(Kind::Route, &["r", "q"]);
        chat.settle();
        assert_eq!(chat.session.acknowledged(), chat.generation);
        chat
    }
}

fn new(kind: Kind, name: &str) -> Said {
    (kind, vec![name.into()], vec![])
}

fn gone(kind: Kind, name: &str) -> Said {
    (kind, vec![], vec![name.into()])
}

#[test]
fn additions_are_sent_make_before_break_and_removals_last() {
    let mut chat = Chat::settled(vec![
        cluster("c", ""),
        endpoints("c"),
        route("r", "c"),
        route("q", "c"),
        listener("l", ""),
    ]);
    chat.publish(
        vec![
            listener("l", "new"),
            route("r", "d"),
            endpoints("d"),
            cluster("d", ""),
        ],
        &[
            (Kind::Endpoints, "c"),
            (Kind::Cluster, "c"),
            (Kind::Route, "q"),
        ],
    );
    assert_eq!(
        chat.settle(),
        [
            vec![new(Kind::Cluster, "d"), new(Kind::Endpoints, "d")],
            vec![new(Kind::Route, "r")],
            vec![new(Kind::Listener, "l")],
            vec![gone(Kind::Route, "q")],
            vec![gone(Kind::Cluster, "c")],
            vec![gone(Kind::Endpoints, "c")],
        ]
    );
    assert_eq!(chat.session.acknowledged(), chat.generation);
}

#[test]
fn each_step_waits_for_the_answer_to_the_one_before() {
    let mut chat = Chat::settled(vec![cluster("c", ""), route("r", "c"), listener("l", "")]);
    chat.publish(
        vec![route("r", "d"), cluster("d", "")],
        &[(Kind::Cluster, "c")],
    );
    for expected in [
        new(Kind::Cluster, "d"),
        new(Kind::Route, "r"),
        gone(Kind::Cluster, "c"),
    ] {
        let said = chat.read();
        assert_eq!(
            said.iter().map(|(_, said)| said).collect::<Vec<_>>(),
            [&expected]
        );
        assert!(chat.read().is_empty(), "nothing more before the answer");
        assert!(chat.session.acknowledged() < chat.generation);
        // Secrets are sent in any order.
        chat.subscribe(Kind::Secret, &["unknown"]);
        let free = chat.read();
        assert_eq!(free[0].1, gone(Kind::Secret, "unknown"));
        chat.answer(Kind::Secret, free[0].0, None);
        chat.answer(expected.0, said[0].0, None);
    }
    assert!(chat.read().is_empty());
    assert_eq!(chat.session.acknowledged(), chat.generation);
}

#[test]
fn the_removal_of_a_cluster_waits_while_a_held_route_table_references_it() {
    let mut chat = Chat::settled(vec![
        cluster("c", ""),
        cluster("d", ""),
        route("r", "c"),
        listener("l", ""),
    ]);
    // The table changes its reference from c to e, and the client refuses it: it stays at the
    // version that references c.
    chat.publish(
        vec![route("r", "e"), cluster("e", "")],
        &[(Kind::Cluster, "c"), (Kind::Cluster, "d")],
    );
    let (nonce, said) = chat.read().remove(0);
    assert_eq!(said, new(Kind::Cluster, "e"));
    chat.answer(Kind::Cluster, nonce, None);
    let (nonce, said) = chat.read().remove(0);
    assert_eq!(said, new(Kind::Route, "r"));
    chat.answer(Kind::Route, nonce, Some("no"));
    let after: Vec<Said> = chat.settle().into_iter().flatten().collect();
    assert!(
        after.contains(&gone(Kind::Cluster, "d")),
        "nobody needs d: {after:?}"
    );
    assert!(
        !after.contains(&gone(Kind::Cluster, "c")),
        "the table that runs leads to c: {after:?}"
    );
    assert!(chat.session.defers(Kind::Cluster, "c"));

    chat.publish(vec![route("r", "e2")], &[]);
    let after: Vec<Said> = chat.settle().into_iter().flatten().collect();
    assert_eq!(
        after,
        [new(Kind::Route, "r"), gone(Kind::Cluster, "c")],
        "healed, and c may go"
    );
}

#[test]
fn changes_during_an_unanswered_response_coalesce_into_one() {
    let mut chat = Chat::settled(vec![cluster("c", "0"), cluster("d", "0")]);
    chat.publish(vec![cluster("c", "1")], &[]);
    let first = chat.read();
    assert_eq!(first.len(), 1);
    for value in 2..50 {
        chat.publish(
            vec![
                cluster("c", &value.to_string()),
                cluster("d", &value.to_string()),
            ],
            &[],
        );
        assert!(chat.read().is_empty(), "one response in flight");
    }
    chat.answer(Kind::Cluster, first[0].0, None);
    let said: Vec<Said> = chat.settle().into_iter().flatten().collect();
    assert_eq!(
        said,
        [(Kind::Cluster, vec!["c".into(), "d".into()], vec![])]
    );
}

#[test]
fn a_new_listener_waits_for_the_acknowledgement_of_its_new_route_table() {
    let mut chat = Chat::settled(vec![cluster("c", ""), route("r", "c"), listener("l", "")]);
    chat.publish(vec![listener("l", "1"), route("r", "c2")], &[]);
    let said = chat.read();
    assert_eq!(
        said.iter().map(|(_, said)| said.0).collect::<Vec<_>>(),
        [Kind::Route]
    );
}

#[test]
fn an_assignment_follows_each_added_or_changed_cluster() {
    let mut chat = Chat::settled(vec![warming("c", "", ""), endpoints("c"), endpoints("d")]);
    fn both(cluster: &str, assignment: &str) -> [Vec<Said>; 1] {
        [vec![
            new(Kind::Cluster, cluster),
            new(Kind::Endpoints, assignment),
        ]]
    }
    chat.publish(vec![warming("c", "", "other")], &[]);
    assert_eq!(chat.settle(), both("c", "c"), "a changed cluster");
    chat.publish(vec![warming("e", "c", "")], &[]);
    assert_eq!(
        chat.settle(),
        both("e", "c"),
        "another cluster with the same assignment"
    );
    chat.publish(vec![warming("f", "f", ""), endpoints("f")], &[]);
    assert_eq!(
        chat.settle(),
        [[new(Kind::Cluster, "f")]],
        "nobody has asked for it yet"
    );
    assert_eq!(chat.session.acknowledged(), chat.generation);

    // The client answers no cluster before it has the assignment, which is in flight when the
    // cluster is published.
    chat.publish(vec![endpoints("d")], &[(Kind::Endpoints, "c")]);
    chat.settle();
    chat.publish(vec![warming("c", "", "last"), endpoints("c")], &[]);
    let said: Vec<Said> = chat.read().into_iter().map(|(_, said)| said).collect();
    assert_eq!(said, [new(Kind::Cluster, "c"), new(Kind::Endpoints, "c")]);
}

/// On a new stream the client reports the assignments that it has, and cannot know which clusters
/// have changed.
#[test]
fn assignments_follow_clusters_that_were_sent_before_the_endpoint_subscription() {
    for clusters_first in [true, false] {
        let assignment = endpoints("c");
        let version = assignment.version().to_owned();
        let resources = vec![
            warming("c", "", "new"),
            assignment,
            warming("d", "", ""),
            endpoints("d"),
        ];
        fn held(name: &str, resources: &[Resource]) -> Option<Resource> {
            resources
                .iter()
                .find(|r| r.kind() == Kind::Cluster && r.name() == name)
                .cloned()
        }
        let unchanged = held("d", &resources)
            .expect("it is there")
            .version()
            .to_owned();
        let mut chat = Chat::new(Limits::default(), resources);
        fn versions(all: &[(&str, &str)]) -> HashMap<String, String> {
            all.iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect()
        }
        let clusters = DeltaRequest {
            initial_resource_versions: versions(&[("c", "old"), ("d", &unchanged)]),
            ..Default::default()
        };
        let assignments = DeltaRequest {
            subscribe: vec!["c".into(), "d".into()],
            initial_resource_versions: versions(&[
                ("c", &version),
                ("d", endpoints("d").version()),
            ]),
            ..Default::default()
        };
        chat.send(Kind::Cluster, clusters);
        let mut said = if clusters_first {
            chat.read()
        } else {
            Vec::new()
        };
        chat.send(Kind::Endpoints, assignments);
        said.extend(chat.read());
        let said: Vec<Said> = said.into_iter().map(|(_, said)| said).collect();
        assert_eq!(
            said,
            [new(Kind::Cluster, "c"), new(Kind::Endpoints, "c")],
            "clusters first: {clusters_first}"
        );
    }
}

/// A state-of-the-world client reports this for all its assignments at once.
#[test]
fn assignments_of_warming_clusters_are_sent_to_a_client_that_reports_them() {
    let mut chat = Chat::new(
        Limits::default(),
        vec![warming("c", "", ""), endpoints("c"), endpoints("d")],
    );
    chat.subscribe(Kind::Cluster, &[]);
    chat.read();
    chat.subscribe(Kind::Endpoints, &["c", "d"]);
    chat.session.mark_held(Kind::Endpoints, &chat.tables);
    let said: Vec<Said> = chat.read().into_iter().map(|(_, said)| said).collect();
    assert_eq!(said, [new(Kind::Endpoints, "c")]);
}

#[test]
fn a_secret_is_removed_after_the_listeners_and_added_at_any_time() {
    let mut chat = Chat::settled(vec![listener("l", ""), secret("h"), secret("i")]);
    chat.subscribe(Kind::Secret, &["h", "i"]);
    chat.settle();
    chat.publish(
        vec![listener("l", "passes h through")],
        &[(Kind::Secret, "h")],
    );
    assert_eq!(
        chat.settle(),
        [[new(Kind::Listener, "l")], [gone(Kind::Secret, "h")]]
    );
    assert_eq!(chat.session.acknowledged(), chat.generation);

    // A removal during a round waits for the next round, which has its listener.
    chat.publish(vec![listener("l", "1")], &[]);
    let first = chat.read();
    chat.publish(
        vec![listener("l", "2"), secret("h")],
        &[(Kind::Secret, "i")],
    );
    let free = chat.read();
    assert_eq!(
        free.iter()
            .map(|(_, said)| said.clone())
            .collect::<Vec<_>>(),
        [new(Kind::Secret, "h")]
    );
    chat.answer(Kind::Secret, free[0].0, None);
    assert!(chat.session.acknowledged() < chat.generation);
    chat.answer(Kind::Listener, first[0].0, None);
    assert_eq!(
        chat.settle(),
        [[new(Kind::Listener, "l")], [gone(Kind::Secret, "i")]]
    );
    assert_eq!(chat.session.acknowledged(), chat.generation);

    // Removals that were undone, or whose subscription ended, meanwhile are not sent.
    chat.publish(
        vec![listener("l", "3")],
        &[(Kind::Secret, "h"), (Kind::Secret, "i")],
    );
    let said = chat.read();
    chat.publish(vec![secret("h")], &[]);
    chat.send(
        Kind::Secret,
        DeltaRequest {
            unsubscribe: vec!["i".into()],
            ..Default::default()
        },
    );
    assert_eq!(
        chat.read()
            .into_iter()
            .map(|(_, said)| said)
            .collect::<Vec<_>>(),
        [new(Kind::Secret, "h")]
    );
    chat.answer(Kind::Listener, said[0].0, None);
    let last = chat
        .session
        .unanswered(Kind::Secret)
        .next()
        .expect("it was sent");
    chat.answer(Kind::Secret, last, None);
    assert!(chat.settle().is_empty());
    assert_eq!(chat.session.acknowledged(), chat.generation);
}

#[test]
fn a_change_during_an_unanswered_response_follows_its_answer() {
    let mut chat = Chat::new(Limits::default(), vec![cluster("a", "0")]);
    chat.subscribe(Kind::Cluster, &[]);
    chat.settle();
    chat.publish(vec![cluster("a", "1")], &[]);
    let sent = chat.read();
    chat.publish(vec![cluster("b", "1")], &[]);
    assert_eq!(chat.read(), [], "one at a time");
    chat.answer(Kind::Cluster, sent[0].0, None);
    let said: Vec<Said> = chat.read().into_iter().map(|(_, said)| said).collect();
    assert_eq!(said, [new(Kind::Cluster, "b")]);
}

#[test]
fn unsubscribing_ends_the_rejection_of_a_resource() {
    for refused_before in [true, false] {
        let mut chat = Chat::new(Limits::default(), vec![cluster("bad", "")]);
        chat.subscribe(Kind::Cluster, &[]);
        let (nonce, _) = chat.read().remove(0);
        let leave = DeltaRequest {
            unsubscribe: vec!["*".into()],
            ..Default::default()
        };
        if refused_before {
            chat.answer(Kind::Cluster, nonce, Some("bad is bad"));
            chat.send(Kind::Cluster, leave);
        } else {
            chat.send(Kind::Cluster, leave);
            chat.answer(Kind::Cluster, nonce, Some("bad is bad"));
        }
        let told = chat
            .session
            .take_effects()
            .into_iter()
            .fold(0, |told, effect| match effect {
                Effect::Rejected { .. } => told + 1,
                Effect::Recovered { .. } => told - 1,
                _ => told,
            });
        assert_eq!(told, 0, "refused before it was left: {refused_before}");
        assert!(
            chat.session
                .subscription(Kind::Cluster)
                .expect("it was asked for")
                .quarantine
                .is_empty()
        );
    }
}

/// Makes a client that unsubscribed while `name` was in flight and subscribed again; returns the
/// nonce as well. The cluster was removed meanwhile.
fn resubscribed_after_removal(name: &str) -> (Chat, u64) {
    let mut chat = Chat::new(Limits::default(), vec![cluster(name, "")]);
    chat.subscribe(Kind::Cluster, &[]);
    let (nonce, _) = chat.read().remove(0);
    chat.send(
        Kind::Cluster,
        DeltaRequest {
            unsubscribe: vec!["*".into()],
            ..Default::default()
        },
    );
    chat.publish(vec![], &[(Kind::Cluster, name)]);
    assert_eq!(chat.read(), []);
    chat.subscribe(Kind::Cluster, &["*"]);
    (chat, nonce)
}

#[test]
fn a_resource_that_was_removed_while_unsubscribed_is_not_reported_as_refused() {
    let (mut chat, nonce) = resubscribed_after_removal("bad");
    chat.answer(Kind::Cluster, nonce, Some("bad is bad"));
    let told = chat.session.take_effects();
    assert!(
        !told
            .iter()
            .any(|effect| matches!(effect, Effect::Rejected { .. })),
        "{told:?}"
    );
}

#[test]
fn a_resource_in_flight_that_was_removed_while_unsubscribed_is_withdrawn() {
    let (mut chat, nonce) = resubscribed_after_removal("short");
    assert_eq!(chat.read(), []);
    chat.answer(Kind::Cluster, nonce, None);
    assert_eq!(
        chat.settle(),
        [[(Kind::Cluster, vec![], vec!["short".to_owned()])]]
    );
}
