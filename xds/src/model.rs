//! Model tests: in any order of events, a client ends with exactly its view.

mod sotw;

use self::sotw::SotwModel;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::{
    Filter, FilterChain, Listener, filter::ConfigType,
};
use envoy_types::pb::envoy::config::route::v3::{RouteConfiguration, ScopedRouteConfiguration};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, ScopedRds, ScopedRoutes, http_connection_manager::RouteSpecifier,
    scoped_routes::ConfigSpecifier,
};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use envoy_types::pb::envoy::service::discovery::v3 as pb;
use envoy_types::pb::google::protobuf::Any;
use proptest::prelude::*;
use prost::{Message, Name};

use crate::ack_tracker::AckTracker;
use crate::dialect::{Delta, Dialect, Sotw};
use crate::session::{Effect, Session};
use crate::view_store::ViewStore;
use crate::wire::{DeltaRequest, ErrorDetail, SotwRequest};
use crate::{Kind, Limits, Resource, View};

const KINDS: [Kind; 6] = [
    Kind::Cluster,
    Kind::Endpoints,
    Kind::Route,
    Kind::Scope,
    Kind::Listener,
    Kind::Secret,
];
const NAMES: [&str; 5] = ["n0", "n1", "n2", "n3", "n4"];
/// A value that clients refuse.
const BAD: u8 = 3;
/// The value of a listener that takes its routes from scopes.
const SCOPED: u8 = 1;

fn resource(kind: Kind, name: &str, value: u8) -> Resource {
    // A state-of-the-world client identifies a resource by the name inside it.
    let text = format!("value-{value}/{name}");
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
        Kind::Route => Resource::new(
            name,
            &RouteConfiguration {
                name: text,
                ..Default::default()
            },
        ),
        Kind::Scope => Resource::new(
            name,
            &ScopedRouteConfiguration {
                name: text,
                ..Default::default()
            },
        ),
        Kind::Listener => {
            let filter_chains = if value == SCOPED {
                vec![scoped()]
            } else {
                vec![]
            };
            Resource::new(
                name,
                &Listener {
                    filter_chains,
                    stat_prefix: text,
                    ..Default::default()
                },
            )
        }
        Kind::Secret => Resource::new(
            name,
            &Secret {
                name: text,
                ..Default::default()
            },
        ),
        other => panic!("{other} is not part of the model"),
    }
}

/// A filter chain that takes its routes from scopes.
fn scoped() -> FilterChain {
    let source = ConfigSpecifier::ScopedRds(ScopedRds::default());
    let routes = ScopedRoutes {
        config_specifier: Some(source),
        ..Default::default()
    };
    let route_specifier = Some(RouteSpecifier::ScopedRoutes(routes));
    let manager = HttpConnectionManager {
        route_specifier,
        ..Default::default()
    };
    let manager = Any {
        type_url: HttpConnectionManager::type_url(),
        value: manager.encode_to_vec(),
    };
    let filter = Filter {
        config_type: Some(ConfigType::TypedConfig(manager)),
        ..Default::default()
    };
    FilterChain {
        filters: vec![filter],
        ..Default::default()
    }
}

fn is_scoped(body: &[u8]) -> bool {
    !Listener::decode(body)
        .expect("a listener")
        .filter_chains
        .is_empty()
}

fn is_bad(body: &[u8]) -> bool {
    let bad = format!("value-{BAD}");
    body.windows(bad.len()).any(|w| w == bad.as_bytes())
}

#[derive(Clone, Debug)]
enum Op {
    Publish(Vec<(usize, usize, Option<u8>)>),
    Wildcard(usize),
    Subscribe(usize, Vec<usize>),
    Unsubscribe(usize, Vec<usize>),
    UnsubscribeWildcard(usize),
    /// The client reads a response.
    Read,
    /// The client answers the oldest response it read.
    Answer,
    Reconnect,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let kind = 0..KINDS.len();
    let names = || prop::collection::vec(0..NAMES.len(), 1..4);
    let change = (
        0..KINDS.len(),
        0..NAMES.len(),
        prop::option::weighted(0.8, 0..4u8),
    );
    let op = prop_oneof![
        6 => prop::collection::vec(change, 1..6).prop_map(Op::Publish),
        2 => kind.clone().prop_map(Op::Wildcard),
        3 => (kind.clone(), names()).prop_map(|(k, n)| Op::Subscribe(k, n)),
        2 => (kind.clone(), names()).prop_map(|(k, n)| Op::Unsubscribe(k, n)),
        1 => kind.prop_map(Op::UnsubscribeWildcard),
        8 => Just(Op::Read),
        8 => Just(Op::Answer),
        1 => Just(Op::Reconnect),
    ];
    prop::collection::vec(op, 0..60)
}

/// The server's side of one stream, and its view.
struct World<D: Dialect> {
    view_store: ViewStore,
    session: Session,
    dialect: D,
    generation: u64,
    limits: Arc<Limits>,
    rejected: BTreeSet<(Kind, String)>,
}

impl<D: Dialect> World<D> {
    fn new() -> Self {
        let view = View::new("model");
        let (events, _) = tokio::sync::broadcast::channel(16);
        let view_store = ViewStore::new(
            view.clone(),
            Arc::default(),
            AckTracker::new(view, Arc::default(), events),
        );
        // Small pages, so that the model includes paging.
        let limits = Arc::new(Limits {
            response_resources: 3,
            ..Default::default()
        });
        World {
            view_store,
            session: Session::new(D::PROTOCOL, limits.clone(), 0),
            dialect: D::new(),
            generation: 0,
            limits,
            rejected: BTreeSet::new(),
        }
    }

    fn publish(&mut self, changes: &[(usize, usize, Option<u8>)]) {
        self.generation += 1;
        // The last change of a name in a group wins, as in a map.
        let changes: BTreeMap<_, _> = changes.iter().map(|(k, n, v)| ((*k, *n), *v)).collect();
        let upserts = changes
            .iter()
            .filter_map(|((k, n), v)| Some(resource(KINDS[*k], NAMES[*n], (*v)?)))
            .collect();
        let removals: Vec<_> = changes
            .iter()
            .filter(|(_, v)| v.is_none())
            .map(|((k, n), _)| (KINDS[*k], NAMES[*n].to_owned()))
            .collect();
        self.view_store.write().apply(
            self.generation,
            upserts,
            &removals,
            self.session.forgettable(),
        );
    }

    fn reconnect(&mut self) {
        self.session = Session::new(
            D::PROTOCOL,
            self.limits.clone(),
            self.view_store.read().generation,
        );
        self.dialect = D::new();
        self.rejected.clear();
    }

    fn request(&mut self, kind: Kind, request: D::Request) {
        let tables = self.view_store.read();
        self.dialect
            .read(&mut self.session, kind, request, &tables, Instant::now())
            .expect("within limits");
    }

    fn respond(&mut self) -> Option<(Kind, D::Response)> {
        loop {
            let out = {
                let tables = self.view_store.read();
                self.session.next(&tables, Instant::now(), || true)
            };
            for effect in self.session.take_effects() {
                match effect {
                    Effect::Acknowledged(resources) => {
                        self.view_store.acknowledge(resources.iter())
                    }
                    Effect::Rejected { kind, name, .. } => {
                        self.rejected.insert((kind, name.to_string()));
                    }
                    Effect::Recovered { kind, name } => {
                        assert!(
                            self.rejected.remove(&(kind, name.to_string())),
                            "{kind} {name} recovers and was not refused"
                        );
                    }
                    Effect::Divided {
                        kind, name, parts, ..
                    } => {
                        if parts.is_empty() {
                            self.rejected.remove(&(kind, name.to_string()));
                        } else {
                            self.rejected.insert((kind, name.to_string()));
                        }
                    }
                    Effect::Suspected { kind, name, held } => {
                        self.view_store
                            .suspect(|suspects| suspects.set(kind, &name, &held));
                    }
                    Effect::Answered { .. } | Effect::Evicted { .. } | Effect::Unknown { .. } => {}
                }
            }
            let out = out?;
            if let Some(response) = self.dialect.write(&out, 0) {
                return Some((out.kind, response));
            }
            let tables = self.view_store.read();
            self.session.answer(
                out.kind,
                &out.nonce.to_string(),
                None,
                &tables,
                Instant::now(),
            );
        }
    }

    /// Asserts the final state of a client that holds `held` and subscribes to the names for which
    /// `wants` is true.
    fn check(&self, kind: Kind, wants: impl Fn(&str) -> bool, held: &BTreeMap<String, Vec<u8>>) {
        let tables = self.view_store.read();
        let table = tables.table(kind);
        for name in NAMES.iter().filter(|n| wants(n)) {
            let current = table.current(name).map(|r| r.body().to_vec());
            match &current {
                _ if self.session.drops(kind) => {}
                Some(body) if is_bad(body) => {
                    assert!(
                        held.get(*name).is_none_or(|b| !is_bad(b)),
                        "{kind} {name} runs what it refused"
                    );
                    assert!(
                        self.rejected.contains(&(kind, (*name).to_owned())),
                        "{kind} {name} is bad and nobody was told"
                    );
                }
                None if self.session.defers(kind, name) => {}
                _ => {
                    assert_eq!(held.get(*name), current.as_ref(), "{kind} {name}");
                    assert!(
                        !self.rejected.contains(&(kind, (*name).to_owned())),
                        "{kind} {name} is good and still called refused"
                    );
                }
            }
        }
        for name in held.keys() {
            assert!(wants(name), "{kind} {name} is held and not subscribed");
        }
    }
}

#[derive(Default)]
struct Wants {
    wildcard: bool,
    names: BTreeSet<String>,
    asked: bool,
}

impl Wants {
    fn wants(&self, kind: Kind, name: &str) -> bool {
        (self.wildcard && kind.allows_wildcard()) || self.names.contains(name)
    }
}

/// A delta client as the protocol page describes it.
#[derive(Default)]
struct DeltaModel {
    wants: HashMap<Kind, Wants>,
    held: HashMap<Kind, BTreeMap<String, (String, Vec<u8>)>>,
    unanswered: VecDeque<pb::DeltaDiscoveryResponse>,
    partial: bool,
    /// The scopes of Envoy's listeners, while one subscribes to scopes. Scopes that arrive at
    /// another time are acknowledged and dropped, and Envoy reports after a reconnect that it has
    /// them all the same.
    scopes: Option<BTreeMap<String, Vec<u8>>>,
    /// True if the client reconnected and reported scopes that its listeners did not have.
    mistaken: bool,
}

impl DeltaModel {
    /// Subscribes to scopes with the first listener that uses them, and unsubscribes with the last,
    /// without a request.
    fn follow_listeners(&mut self) {
        let listeners = self.held.get(&Kind::Listener).into_iter().flatten();
        if listeners.into_iter().any(|(_, (_, body))| is_scoped(body)) {
            _ = self.scopes.get_or_insert_default()
        } else {
            self.scopes = None
        }
    }

    fn send(&self, world: &mut World<Delta>, kind: Kind, request: pb::DeltaDiscoveryRequest) {
        let request =
            DeltaRequest::decode(request.encode_to_vec().as_slice()).expect("wire-compatible");
        world.request(kind, request);
    }

    fn read(&mut self, world: &mut World<Delta>) -> bool {
        let Some((kind, response)) = world.respond() else {
            return false;
        };
        let response = pb::DeltaDiscoveryResponse::decode(response.encode_to_vec().as_slice())
            .expect("wire-compatible");
        assert!(
            response.resources.len() + response.removed_resources.len() <= 64,
            "a response within its limits"
        );
        let unanswered = self
            .unanswered
            .iter()
            .filter_map(|r| Kind::of_type_url(&r.type_url));
        for earlier in unanswered {
            assert!(
                response.resources.is_empty()
                    || kind.rank() == crate::kind::Rank::Free
                    || earlier.rank() >= kind.rank(),
                "{kind} is sent while {earlier} is unanswered"
            );
        }
        self.unanswered.push_back(response);
        true
    }

    fn answer(&mut self, world: &mut World<Delta>) -> bool {
        let Some(response) = self.unanswered.pop_front() else {
            return false;
        };
        let kind = Kind::of_type_url(&response.type_url).expect("a known type");
        let wants = self.wants.entry(kind).or_default();
        let held = self.held.entry(kind).or_default();
        let body = |r: &pb::Resource| r.resource.as_ref().expect("a body").value.clone();
        let refused = response.resources.iter().any(|r| is_bad(&body(r)));
        if !refused || self.partial {
            let mut scopes = self.scopes.as_mut().filter(|_| kind == Kind::Scope);
            for r in response
                .resources
                .iter()
                .filter(|r| wants.wants(kind, &r.name) && !is_bad(&body(r)))
            {
                held.insert(r.name.clone(), (r.version.clone(), body(r)));
                scopes.iter_mut().for_each(|scopes| {
                    scopes.insert(r.name.clone(), body(r));
                });
            }
            for name in &response.removed_resources {
                held.remove(name);
                scopes.iter_mut().for_each(|scopes| {
                    scopes.remove(name);
                });
            }
        }
        self.follow_listeners();
        let error = refused.then(|| envoy_types::pb::google::rpc::Status {
            code: 3,
            message: "bad".into(),
            details: vec![],
        });
        self.send(
            world,
            kind,
            pb::DeltaDiscoveryRequest {
                response_nonce: response.nonce,
                error_detail: error,
                ..Default::default()
            },
        );
        true
    }

    fn subscribe(
        &mut self,
        world: &mut World<Delta>,
        kind: Kind,
        subscribe: Vec<String>,
        unsubscribe: Vec<String>,
    ) {
        let wants = self.wants.entry(kind).or_default();
        let first = !std::mem::replace(&mut wants.asked, true);
        for name in &unsubscribe {
            if name == "*" {
                wants.wildcard = false;
            } else {
                wants.names.remove(name);
            }
        }
        // The first request of a stream with an empty `subscribe` is a wildcard, also if it
        // unsubscribes from something.
        wants.wildcard |= first && subscribe.is_empty();
        for name in &subscribe {
            if name == "*" {
                wants.wildcard = true;
            } else {
                wants.names.insert(name.clone());
            }
        }
        let held = self.held.entry(kind).or_default();
        let wants = &self.wants[&kind];
        held.retain(|name, _| wants.wants(kind, name));
        if let Some(scopes) = self.scopes.as_mut().filter(|_| kind == Kind::Scope) {
            scopes.retain(|name, _| wants.wants(kind, name));
        }
        let initial = if first {
            held.iter()
                .map(|(n, (v, _))| (n.clone(), v.clone()))
                .collect()
        } else {
            HashMap::new()
        };
        let request = pb::DeltaDiscoveryRequest {
            resource_names_subscribe: subscribe,
            resource_names_unsubscribe: unsubscribe,
            initial_resource_versions: initial,
            ..Default::default()
        };
        self.follow_listeners();
        self.send(world, kind, request);
    }

    fn reconnect(&mut self, world: &mut World<Delta>) {
        let named = |scopes: Option<&BTreeMap<String, _>>| scopes.map_or(0, BTreeMap::len);
        let said = self.held.get(&Kind::Scope).map_or(0, BTreeMap::len);
        self.mistaken |= said > named(self.scopes.as_ref());
        world.reconnect();
        self.unanswered.clear();
        let wanted: Vec<_> = KINDS
            .into_iter()
            .filter(|k| self.wants.get(k).is_some_and(|w| w.asked))
            .collect();
        for kind in wanted {
            let wants = self.wants.get_mut(&kind).expect("filtered");
            wants.asked = false;
            let mut names: Vec<String> = wants.names.iter().cloned().collect();
            if wants.wildcard {
                names.push("*".into());
            }
            if names.is_empty() {
                // No subscription is left: the client sends no request.
                continue;
            }
            self.subscribe(world, kind, names, vec![]);
        }
    }
}

fn names(indexes: &[usize]) -> Vec<String> {
    indexes.iter().map(|i| NAMES[*i].to_owned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..Default::default() })]

    #[test]
    fn a_delta_client_ends_with_its_view(ops in ops(), partial: bool) {
        let mut world = World::<Delta>::new();
        let mut client = DeltaModel { partial, ..Default::default() };
        for op in ops {
            match op {
                Op::Publish(changes) => world.publish(&changes),
                Op::Wildcard(k) => client.subscribe(&mut world, KINDS[k], vec!["*".into()], vec![]),
                Op::Subscribe(k, n) => client.subscribe(&mut world, KINDS[k], names(&n), vec![]),
                Op::Unsubscribe(k, n) => client.subscribe(&mut world, KINDS[k], vec![], names(&n)),
                Op::UnsubscribeWildcard(k) => client.subscribe(&mut world, KINDS[k], vec![], vec!["*".into()]),
                Op::Read => { client.read(&mut world); }
                Op::Answer => { client.answer(&mut world); }
                Op::Reconnect => client.reconnect(&mut world),
            }
        }
        let mut steps = 0;
        while client.read(&mut world) || client.answer(&mut world) {
            steps += 1;
            prop_assert!(steps < 10_000, "the exchange never ends");
        }
        for kind in KINDS {
            let wants = client.wants.entry(kind).or_default();
            let held = client.held.get(&kind).into_iter().flatten().map(|(n, (_, b))| (n.clone(), b.clone())).collect();
            world.check(kind, |name| wants.wants(kind, name), &held);
        }
        if let Some(scopes) = client.scopes.as_ref().filter(|_| client.wants[&Kind::Listener].asked && !client.mistaken) {
            let wants = client.wants.entry(Kind::Scope).or_default();
            world.check(Kind::Scope, |name| wants.wants(Kind::Scope, name), scopes);
        }
        if client.wants.values().any(|w| w.asked) {
            prop_assert_eq!(world.session.acknowledged(), world.view_store.read().generation);
        }
        // Everything is settled: a client that reconnects gets only the resources that it refuses.
        let good = KINDS.into_iter().all(|k| world.view_store.read().table(k).resources().all(|r| !is_bad(&r.body())));
        if good {
            client.reconnect(&mut world);
            while let Some((_, response)) = world.respond() {
                prop_assert!(response.resources.is_empty(), "resent {:?}", response.resources.len());
                client.unanswered.push_back(pb::DeltaDiscoveryResponse::decode(response.encode_to_vec().as_slice()).expect("wire-compatible"));
                client.answer(&mut world);
            }
        }
    }

    #[test]
    fn a_state_of_the_world_client_ends_with_its_view(ops in ops()) {
        let mut world = World::<Sotw>::new();
        let mut client = SotwModel::default();
        for op in ops {
            match op {
                Op::Publish(changes) => world.publish(&changes),
                Op::Wildcard(k) => client.change(&mut world, KINDS[k], |names| { names.insert("*".into()); }),
                Op::Subscribe(k, n) => client.change(&mut world, KINDS[k], |wanted| wanted.extend(names(&n))),
                Op::Unsubscribe(k, n) => client.change(&mut world, KINDS[k], |wanted| wanted.retain(|w| !names(&n).contains(w))),
                Op::UnsubscribeWildcard(k) => client.change(&mut world, KINDS[k], |wanted| { wanted.remove("*"); }),
                Op::Read => { client.read(&mut world); }
                Op::Answer => { client.answer(&mut world); }
                Op::Reconnect => client.reconnect(&mut world),
            }
        }
        let mut steps = 0;
        while client.read(&mut world) || client.answer(&mut world) {
            steps += 1;
            prop_assert!(steps < 10_000, "the exchange never ends");
        }
        for kind in KINDS.into_iter().filter(|k| k.full_state()) {
            // A client drops resources that it unsubscribes from by itself.
            let named = |body: &[u8]| NAMES.into_iter().find(|n| body.ends_with(n.as_bytes())).expect("every body ends with its name");
            let mut bodies: Vec<Vec<u8>> = client.held.get(&kind).cloned().unwrap_or_default();
            bodies.retain(|b| client.wants(kind, named(b)));
            bodies.sort();
            let tables = world.view_store.read();
            let mut wanted: Vec<Vec<u8>> = Vec::new();
            let mut refused = false;
            for resource in tables.table(kind).resources().filter(|r| client.wants(kind, r.name())) {
                refused |= is_bad(&resource.body());
                wanted.push(resource.body().to_vec());
            }
            wanted.sort();
            if refused {
                prop_assert!(bodies.iter().all(|b| !is_bad(b)), "{} runs what it refused", kind);
            } else if !world.session.drops(kind) && !NAMES.iter().any(|n| world.session.defers(kind, n)) {
                prop_assert_eq!(bodies, wanted, "{}", kind);
            }
        }
    }
}
