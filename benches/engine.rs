//! Cost of one change without a server: engine, encoding and publication, at several numbers of
//! hosts.
//!
//! `cargo bench --bench engine [-- HOSTS...]`. Every host has a certificate, a ListenerSet and an
//! HTTPRoute of its own. Prints the median over many changes, and the heap per host: of the engine,
//! the statuses, and the xDS cache.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::time::{Duration, Instant, SystemTime};

use gatewright_control::publish;
use gatewright_core::inputs::{Object, ObjectChange};
use gatewright_core::limits::Limits;
use gatewright_core::translate::{Change, Delta, Engine, Settings};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use xds::{Cache, Resource, View};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

fn object(value: Value) -> Change {
    Change::put(Object::parse(value).expect("a valid object"))
}

fn api(kind: &str, name: &str, spec: Value) -> Change {
    object(
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind,
        "metadata": {"namespace": "a", "name": name}, "spec": spec}),
    )
}

fn base() -> Vec<Change> {
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "ours"}, "spec": {"controllerName": "gatewright.io/gateway-controller"}});
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    let allowed = json!({"namespaces": {"from": "All"}});
    let gateway =
        json!({"gatewayClassName": "ours", "listeners": listeners, "allowedListeners": allowed});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "web"},
        "spec": {"ports": [{"port": 80}]}});
    vec![object(class), api("Gateway", "g", gateway), object(service)]
}

struct Keys {
    chain: String,
    key: String,
}

/// One certificate for all hosts: its bytes are copied for each, so that memory is as with distinct
/// ones.
fn keys() -> Keys {
    let pair = rcgen::generate_simple_self_signed(vec!["*.example.org".to_owned()])
        .expect("a certificate");
    Keys {
        chain: pair.cert.pem().repeat(2),
        key: pair.signing_key.serialize_pem(),
    }
}

fn secret(n: usize, keys: &Keys) -> Change {
    object(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": "a", "name": format!("c{n}")},
        "stringData": {"tls.crt": keys.chain, "tls.key": keys.key}}),
    )
}

fn route(n: usize, path: &str) -> Change {
    let rule = json!({"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web", "port": 80}]});
    api(
        "HTTPRoute",
        &format!("r{n}"),
        json!({"parentRefs": [{"kind": "ListenerSet", "name": format!("s{n}")}], "rules": [rule]}),
    )
}

fn host(n: usize, keys: &Keys) -> Vec<Change> {
    let listener = json!({"name": "https", "port": 443, "protocol": "HTTPS", "hostname": format!("h{n}.example.org"),
        "tls": {"certificateRefs": [{"name": format!("c{n}")}]}});
    let set = json!({"parentRef": {"name": "g"}, "listeners": [listener]});
    vec![
        secret(n, keys),
        api("ListenerSet", &format!("s{n}"), set),
        route(n, "/"),
    ]
}

/// The engine, and the cache of the xDS server.
struct Ours {
    engine: Engine,
    cache: Cache,
    view: View,
}

impl Ours {
    fn new() -> Ours {
        let address = "127.0.0.1".parse().expect("an address");
        let settings = Settings::new("gatewright.io/gateway-controller", vec![address]);
        let settings = Settings {
            limits: Limits::NONE,
            ..settings
        };
        Ours {
            engine: Engine::new(settings),
            cache: Cache::new(),
            view: View::new("fleet"),
        }
    }

    /// Applies changes and publishes the result; returns the time, the bytes and the number of
    /// resources.
    fn step(&mut self, changes: Vec<Change>, now: SystemTime) -> (Duration, usize, usize) {
        let start = Instant::now();
        let delta: Delta = self.engine.apply(changes, now);
        let update = publish::update(&delta);
        let bytes = update.upserts.iter().map(Resource::encoded_len).sum();
        self.cache.publish(&self.view, update);
        (start.elapsed(), bytes, delta.resources.len())
    }
}

fn median(mut all: Vec<(Duration, usize, usize)>) -> (Duration, usize, usize) {
    all.sort();
    all[all.len() / 2]
}

fn main() {
    let keys = keys();
    let now = SystemTime::now();
    println!(
        "hosts   | add one           | change a route    | rotate            | remove            | all from nothing | KB of heap per host"
    );
    let mut counts: Vec<usize> = std::env::args()
        .filter_map(|arg| arg.parse().ok())
        .collect();
    if counts.is_empty() {
        counts = vec![64, 1_000, 10_000];
    }
    for count in counts {
        let region = Region::new(ALLOCATOR);
        let mut all = base();
        all.extend((0..count).flat_map(|n| host(n, &keys)));
        let mut ours = Ours::new();
        let (cold, ..) = ours.step(all, now);
        let held = region.change();
        let memory = held.bytes_allocated - held.bytes_deallocated;
        let mut rows: [Vec<_>; 4] = Default::default();
        for n in count..count + 200 {
            let changes = host(n, &keys);
            rows[0].push(ours.step(changes, now));
        }
        let other = self::keys();
        for n in 0..64 {
            rows[1].push(ours.step(vec![route(n, "/changed")], now));
            rows[2].push(ours.step(vec![secret(n, &other)], now));
        }
        for n in count..count + 200 {
            let gone = host(n, &keys).into_iter().map(|change| match change {
                Change::Object(ObjectChange::Put(object)) => Change::delete(object.key()),
                gone => gone,
            });
            rows[3].push(ours.step(gone.collect(), now));
        }
        let texts: Vec<String> = rows
            .into_iter()
            .map(median)
            .map(|(time, bytes, resources)| {
                format!("{:>5} us {bytes:>5} B {resources}", time.as_micros())
            })
            .collect();
        println!(
            "{count:>7} | {} | {:>13} ms | {:>5.1}",
            texts.join(" | "),
            cold.as_millis(),
            memory as f64 / count as f64 / 1000.0
        );
    }
}
