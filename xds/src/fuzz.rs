//! The functions of the fuzz targets: whatever a client sends, the server neither panics, nor sends
//! endlessly, nor holds more than its limits allow.
//!
//! `e2e/inside/src/fuzz.rs` has the corpus and who runs it; the tests below run the same functions on
//! bounded random input with every `cargo test`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use prost::Message;

use crate::dialect::{Delta, Dialect, Sotw};
use crate::session::{Effect, Session};
use crate::tables::Tables;
use crate::wire::{DeltaRequest, ErrorDetail, SotwRequest};
use crate::{Kind, Limits, Resource};

const KINDS: [Kind; 6] = [
    Kind::Cluster,
    Kind::Endpoints,
    Kind::Route,
    Kind::VirtualHost,
    Kind::Listener,
    Kind::Secret,
];
const NAMES: [&str; 8] = ["a", "b", "c", "d/e", "sds/f", "A", "", "*"];
/// Most responses of any exchange about so few resources.
const ENDLESS: usize = 20_000;

fn limits() -> Limits {
    Limits {
        names: 64,
        name_bytes: 64,
        response_resources: 3,
        response_bytes: 4096,
        on_demand_secrets: 4,
        unknown_secrets: 2,
        ..Default::default()
    }
}

fn resource(kind: Kind, name: &str, value: u8) -> Resource {
    let text = format!("{value}");
    match kind {
        Kind::Cluster => Resource::new(
            name,
            &Cluster {
                alt_stat_name: text,
                ..Default::default()
            },
        ),
        Kind::Endpoints => Resource::new(
            name,
            &ClusterLoadAssignment {
                cluster_name: text,
                ..Default::default()
            },
        ),
        // Some can be divided, and some of those share virtual hosts with the previous version.
        Kind::Route if value % 2 == 1 => {
            let virtual_hosts = (value / 4..value / 4 + 3)
                .map(|at| {
                    let name = format!("{at}");
                    let routes = vec![Route {
                        name: format!("k/{at}/{value}"),
                        ..Default::default()
                    }];
                    VirtualHost {
                        domains: vec![name.clone()],
                        name,
                        routes,
                        ..Default::default()
                    }
                })
                .collect();
            Resource::new(
                name,
                &RouteConfiguration {
                    name: text,
                    virtual_hosts,
                    ..Default::default()
                },
            )
        }
        Kind::Route => Resource::new(
            name,
            &RouteConfiguration {
                name: text,
                ..Default::default()
            },
        ),
        Kind::VirtualHost => Resource::new(
            name,
            &VirtualHost {
                name: text,
                ..Default::default()
            },
        )
        .with_aliases(vec![format!("{name}/alias")]),
        Kind::Listener => Resource::new(
            name,
            &Listener {
                stat_prefix: text,
                ..Default::default()
            },
        ),
        _ => Resource::new(
            name,
            &Secret {
                name: text,
                ..Default::default()
            },
        ),
    }
}

/// One stream and its view.
struct World<D: Dialect> {
    tables: Tables,
    session: Session,
    dialect: D,
    limits: Arc<Limits>,
    generation: u64,
    /// Nonces of the unanswered responses; `last` is the nonce of the latest response.
    unanswered: Vec<(Kind, u64)>,
    last: u64,
    rejected: BTreeMap<(Kind, Arc<str>), Arc<str>>,
    /// True once the server has ended the stream.
    ended: bool,
}

impl<D: Dialect> World<D> {
    fn new() -> Self {
        let limits = Arc::new(limits());
        let mut world = World {
            tables: Tables::default(),
            session: Session::new(D::PROTOCOL, limits.clone(), 0),
            dialect: D::new(),
            limits,
            generation: 0,
            unanswered: Vec::new(),
            last: 0,
            rejected: BTreeMap::new(),
            ended: false,
        };
        let all = KINDS
            .into_iter()
            .flat_map(|kind| NAMES[..6].iter().map(move |name| resource(kind, name, 0)));
        world.publish(all.collect(), vec![]);
        world.reconnect();
        world
    }

    fn publish(&mut self, upserts: Vec<Resource>, removals: Vec<(Kind, String)>) {
        self.generation += 1;
        self.tables.apply(
            self.generation,
            upserts,
            &removals,
            self.session.forgettable(),
        );
    }

    fn reconnect(&mut self) {
        self.session = Session::new(D::PROTOCOL, self.limits.clone(), self.tables.generation);
        self.dialect = D::new();
        self.unanswered.clear();
        (self.last, self.ended) = (0, false);
        self.rejected.clear();
    }

    fn request(&mut self, kind: Kind, request: D::Request) {
        if !self.ended {
            let read = self.dialect.read(
                &mut self.session,
                kind,
                request,
                &self.tables,
                Instant::now(),
            );
            self.ended = read.is_err();
            self.unanswered
                .retain(|(kind, nonce)| self.session.unanswered(*kind).any(|n| n == *nonce));
            self.check();
        }
    }

    /// Returns the next response, encoded.
    fn respond(&mut self) -> Option<Vec<u8>> {
        while !self.ended {
            let out = self.session.next(&self.tables, Instant::now(), || true);
            self.account();
            let out = out?;
            assert!(out.nonce > self.last, "nonces grow");
            self.last = out.nonce;
            let response = self.dialect.write(&out, self.session.considered());
            if let Some(response) = response {
                self.unanswered.push((out.kind, out.nonce));
                self.check();
                return Some(response.encode_to_vec());
            }
            self.session.answer(
                out.kind,
                &out.nonce.to_string(),
                None,
                &self.tables,
                Instant::now(),
            );
        }
        None
    }

    fn account(&mut self) {
        for effect in self.session.take_effects() {
            match effect {
                Effect::Rejected {
                    kind,
                    name,
                    version,
                    ..
                } => {
                    self.rejected.insert((kind, name), version);
                }
                Effect::Recovered { kind, name } => {
                    assert!(
                        self.rejected.remove(&(kind, name)).is_some(),
                        "what recovers was refused"
                    );
                }
                // A name can be divided in one version and refused as a whole in the next.
                Effect::Divided { .. }
                | Effect::Suspected { .. }
                | Effect::Answered { .. }
                | Effect::Acknowledged(_)
                | Effect::Evicted { .. }
                | Effect::Unknown { .. } => {}
            }
        }
    }

    /// Asserts the invariants that hold at any time.
    fn check(&self) {
        for sub in self.session.subscriptions() {
            let kind = sub.kind;
            let limits = &self.limits;
            assert!(
                sub.named.len() <= limits.names || self.ended,
                "{kind}: {} names",
                sub.named.len()
            );
            let count = limits.on_demand_secrets;
            let memory = limits.on_demand_secret_memory;
            assert!(
                sub.on_demand.is_within(count, memory),
                "{kind}: {} on-demand secrets",
                sub.on_demand.len()
            );
            assert!(
                sub.cursor <= self.tables.generation && sub.settled <= sub.cursor,
                "{kind}: ahead of the view"
            );
            let known = self.tables.table(kind).len() + limits.names + 16;
            assert!(
                sub.in_flight.iter().map(|f| f.items.len()).sum::<usize>() <= 4 * known,
                "{kind}: in flight"
            );
            assert!(
                sub.answers.len() <= 2 * known,
                "{kind}: {} answers",
                sub.answers.len()
            );
        }
        let acknowledged = self.session.acknowledged();
        assert!(
            acknowledged <= self.tables.generation,
            "{acknowledged} is not published"
        );
    }
}

/// Sends a request of arbitrary bytes on a fresh stream of either protocol, and acknowledges all
/// responses.
pub fn request(data: &[u8]) {
    if let Ok(request) = DeltaRequest::decode(data) {
        let mut world = World::<Delta>::new();
        let kind = Kind::of_type_url(&request.type_url).unwrap_or(KINDS[data.len() % KINDS.len()]);
        world.request(kind, request);
        settle(&mut world, |kind, nonce| DeltaRequest {
            type_url: kind.type_url().into(),
            response_nonce: nonce.to_string(),
            ..Default::default()
        });
    }
    if let Ok(request) = SotwRequest::decode(data) {
        let mut world = World::<Sotw>::new();
        let kind = Kind::of_type_url(&request.type_url).unwrap_or(KINDS[data.len() % KINDS.len()]);
        let names = request.resource_names.clone();
        world.request(kind, request);
        settle(&mut world, |kind, nonce| SotwRequest {
            type_url: kind.type_url().into(),
            resource_names: names.clone(),
            response_nonce: nonce.to_string(),
            ..Default::default()
        });
    }
}

/// Acknowledges all responses until no more come; then every published resource is acknowledged.
fn settle<D: Dialect>(world: &mut World<D>, ack: impl Fn(Kind, u64) -> D::Request) {
    let mut steps = 0;
    loop {
        while let Some(response) = world.respond() {
            assert!(
                response.len() < 64 << 10,
                "a response of {} bytes",
                response.len()
            );
            steps += 1;
            assert!(steps < ENDLESS, "the exchange never ends");
        }
        let Some((kind, nonce)) = world.unanswered.first().copied() else {
            break;
        };
        world.request(kind, ack(kind, nonce));
    }
    if !world.ended && world.session.subscriptions().next().is_some() {
        assert_eq!(
            world.session.acknowledged(),
            world.tables.generation,
            "settled and not acknowledged"
        );
    }
}

/// Draws choices from bytes; all are zero once the bytes are used up.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    fn names(&mut self) -> Vec<String> {
        (0..self.below(4))
            .map(|_| NAMES[self.below(NAMES.len())].to_owned())
            .collect()
    }
}

/// Runs a conversation in which client, owner and network do what the bytes say, valid or not:
/// subscriptions, answers to any nonce, refusals, publications, reconnects.
pub fn conversation(data: &[u8]) {
    let mut choices = Choices(data);
    if choices.byte() % 2 == 0 {
        converse(
            choices,
            |choices, kind, nonce, refusal| DeltaRequest {
                type_url: kind.type_url().into(),
                subscribe: choices.names(),
                unsubscribe: choices.names(),
                initial_resource_versions: choices
                    .names()
                    .into_iter()
                    .map(|name| (name, "1".into()))
                    .collect(),
                response_nonce: nonce,
                error_detail: refusal,
                ..Default::default()
            },
            |kind, nonce| DeltaRequest {
                type_url: kind.type_url().into(),
                response_nonce: nonce.to_string(),
                ..Default::default()
            },
            World::<Delta>::new(),
        );
    } else {
        converse(
            choices,
            |choices, kind, nonce, refusal| SotwRequest {
                type_url: kind.type_url().into(),
                version_info: ["", "1"][choices.below(2)].into(),
                resource_names: choices.names(),
                response_nonce: nonce,
                error_detail: refusal,
                ..Default::default()
            },
            |kind, nonce| SotwRequest {
                type_url: kind.type_url().into(),
                response_nonce: nonce.to_string(),
                ..Default::default()
            },
            World::<Sotw>::new(),
        );
    }
}

fn converse<D: Dialect>(
    mut choices: Choices<'_>,
    any: impl Fn(&mut Choices<'_>, Kind, String, Option<ErrorDetail>) -> D::Request,
    ack: impl Fn(Kind, u64) -> D::Request,
    mut world: World<D>,
) {
    while !choices.0.is_empty() && !world.ended {
        match choices.below(8) {
            0 | 1 => {
                let kind = KINDS[choices.below(KINDS.len())];
                let request = any(&mut choices, kind, String::new(), None);
                world.request(kind, request);
            }
            // An ACK or NACK, with a change of the subscription in the same request.
            2 | 3 if !world.unanswered.is_empty() => {
                let (kind, nonce) = world.unanswered[choices.below(world.unanswered.len())];
                let refusal = choices.byte().is_multiple_of(2).then(|| ErrorDetail {
                    code: 3,
                    message: "a is bad".into(),
                });
                let request = any(&mut choices, kind, nonce.to_string(), refusal);
                world.request(kind, request);
            }
            4 => {
                let kind = KINDS[choices.below(KINDS.len())];
                let nonce = choices.byte().to_string();
                let request = any(&mut choices, kind, nonce, Some(ErrorDetail::default()));
                world.request(kind, request);
            }
            5 => {
                let kind = KINDS[choices.below(KINDS.len())];
                let name = NAMES[choices.below(6)];
                let value = choices.byte();
                match value % 4 {
                    0 => world.publish(vec![], vec![(kind, name.to_owned())]),
                    value => world.publish(vec![resource(kind, name, value)], vec![]),
                }
            }
            6 if choices.byte().is_multiple_of(8) => world.reconnect(),
            _ => {
                world.respond();
            }
        }
    }
    settle(&mut world, ack);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes of a request, possibly with a few changed.
    fn mutated_request() -> impl Strategy<Value = Vec<u8>> {
        let name = prop::sample::select(NAMES.to_vec()).prop_map(str::to_owned);
        let names = prop::collection::vec(name.clone(), 0..6);
        let held = prop::collection::hash_map(name.clone(), "[0-9a-f]{0,4}", 0..4);
        let kind = prop::sample::select(KINDS.to_vec());
        let bends = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
        (kind, names.clone(), names, held, "[0-9]{0,3}", bends).prop_map(
            |(kind, sub, unsub, held, nonce, bends)| {
                let request = DeltaRequest {
                    type_url: kind.type_url().into(),
                    subscribe: sub,
                    unsubscribe: unsub,
                    initial_resource_versions: held,
                    response_nonce: nonce,
                    ..Default::default()
                };
                let mut bytes = request.encode_to_vec();
                for (at, byte) in bends {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
                bytes
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, ..Default::default() })]

        #[test]
        fn arbitrary_bytes_as_a_request_do_no_harm(data in prop::collection::vec(any::<u8>(), 0..200)) {
            request(&data);
        }

        #[test]
        fn a_mutated_request_does_no_harm(data in mutated_request()) {
            request(&data);
        }

        #[test]
        fn any_conversation_stays_in_bounds_and_ends(data in prop::collection::vec(any::<u8>(), 0..400)) {
            conversation(&data);
        }
    }
}
