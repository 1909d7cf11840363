//! What tenancy costs: one route event among many hosts and tenants, and everything at once.
//!
//! `cargo bench --bench tenancy`. Prints medians of CPU time and allocations; what must not grow is asserted by counters in
//! `src/tenancy/confluence.rs` and `tests/pipeline.rs`.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::alloc::System;
use std::time::{Duration, Instant, SystemTime};

use gatewright::inputs::Object;
use gatewright::pipeline::{Pipeline, Written};
use gatewright::tenancy::{self, Claimant, Settings, Tenancy};
use gatewright::translate::Change;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn namespace(name: &str, host: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {
        "namespace.cozystack.io/gateway": name, "namespace.cozystack.io/host": host}}})
}

fn tenant(namespace: &str, apex: &str, mode: &str) -> Value {
    let mut spec = json!({"apex": apex, "certMode": mode});
    if mode == "existingSecret" {
        spec["wildcardSecretRef"] = json!({"name": "wildcard"});
    }
    json!({"apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway",
        "metadata": {"namespace": namespace, "name": "cozystack", "uid": namespace}, "spec": spec})
}

fn route(n: usize) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "tenant-a", "name": format!("r{n}")},
        "spec": {"parentRefs": [{"name": "cozystack"}], "hostnames": [format!("h{n}.a.example.org")],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

fn class() -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "cilium"},
        "spec": {"controllerName": "ours"}})
}

fn all(hosts: usize, tenants: usize, mode: &str) -> Vec<Object> {
    let mut values = vec![class(), namespace("tenant-a", "a.example.org"), tenant("tenant-a", "a.example.org", mode)];
    for n in 1..tenants {
        let (name, apex) = (format!("other-{n}"), format!("o{n}.example.org"));
        values.extend([namespace(&name, &apex), tenant(&name, &apex, mode)]);
    }
    values.extend((0..hosts).map(route));
    values.into_iter().map(object).collect()
}

fn object(value: Value) -> Object {
    Object::parse(value).expect("a valid object")
}

/// The changes of the first stage alone.
fn changes(objects: Vec<Object>) -> Vec<tenancy::Change> {
    let change = |object: Object| match object {
        Object::GatewayClass(class) => tenancy::Change::Class(class.meta.name.name.clone(), true),
        Object::Namespace(given) => {
            let namespace = tenancy::Namespace { labels: given.labels, annotations: given.annotations };
            tenancy::Change::Namespace(given.name, Some(namespace))
        }
        Object::TenantGateway(tenant) => tenancy::Change::TenantGateway(tenant.name.clone(), Some(*tenant)),
        Object::Route(route) => {
            let claimant = Claimant::from(&route);
            tenancy::Change::Claimant(claimant.key.clone(), Some(claimant))
        }
        other => unreachable!("none is made: {other:?}"),
    };
    objects.into_iter().map(change).collect()
}

/// How long a step took, and how often it allocated how much.
type Cost = (Duration, usize, usize);

fn cost<T>(step: impl FnOnce() -> T) -> (Cost, T) {
    let (region, start) = (Region::new(GLOBAL), Instant::now());
    let made = step();
    let (took, used) = (start.elapsed(), region.change());
    ((took, used.allocations + used.reallocations, used.bytes_allocated), made)
}

/// How long this thread was on a processor: others have the machine too, and the step is long enough for the scheduler's
/// accounts.
fn on_processor() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    let nanoseconds = told.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number");
    Duration::from_nanos(nanoseconds)
}

fn median(mut all: Vec<Cost>) -> Cost {
    all.sort();
    all[all.len() / 2]
}

fn cell((took, count, bytes): Cost) -> String {
    format!("{:>6.1} us {count:>5} allocs {:>6.1} KB", took.as_secs_f64() * 1e6, bytes as f64 / 1e3)
}

const ROUNDS: usize = 101;

fn main() {
    println!("one route added, then removed: median of {ROUNDS}");
    println!(
        " hosts | tenants | mode           | tenancy alone: added              | removed                           | both stages: added"
    );
    for mode in ["http01", "existingSecret"] {
        for (hosts, tenants) in [(100, 10), (1_000, 10), (10_000, 10), (100, 1_000), (1_000, 1_000), (10_000, 1_000)] {
            let mut first = Tenancy::new(Settings::default());
            first.apply(changes(all(hosts, tenants, mode)));
            let settings = gatewright::translate::Settings::new("ours", vec!["127.0.0.1".parse().expect("an address")]);
            let mut both = Pipeline::new(settings, Settings::default(), Written::Here);
            let puts = all(hosts, tenants, mode).into_iter().map(Change::Put).collect();
            both.apply(puts, SystemTime::UNIX_EPOCH);
            let mut rows: [Vec<Cost>; 3] = Default::default();
            for n in hosts..hosts + ROUNDS {
                let add = changes(vec![object(route(n))]);
                let remove = add.iter().map(|change| match change {
                    tenancy::Change::Claimant(key, _) => tenancy::Change::Claimant(key.clone(), None),
                    other => other.clone(),
                });
                let remove = remove.collect();
                rows[0].push(cost(|| first.apply(add)).0);
                rows[1].push(cost(|| first.apply(remove)).0);
                let put = Change::Put(object(route(n)));
                let key = object(route(n)).key();
                rows[2].push(cost(|| both.apply(vec![put], SystemTime::UNIX_EPOCH)).0);
                both.apply(vec![Change::Delete(key)], SystemTime::UNIX_EPOCH);
            }
            let cells: Vec<String> = rows.into_iter().map(median).map(cell).collect();
            println!("{hosts:>6} | {tenants:>7} | {mode:<14} | {}", cells.join(" | "));
        }
    }
    println!("\neverything at once, tenancy alone: processor time, median of 7");
    for (hosts, tenants) in [(1_000, 1), (10_000, 1), (10_000, 1_000)] {
        let given = changes(all(hosts, tenants, "http01"));
        let mut costs = Vec::new();
        for _ in 0..7 {
            let (given, mut engine) = (given.clone(), Tenancy::new(Settings::default()));
            let before = on_processor();
            let ((_, count, bytes), delta) = cost(|| engine.apply(given));
            costs.push((on_processor() - before, count, bytes));
            assert!(delta.objects.len() >= hosts, "a Certificate for each host");
        }
        let (took, count, bytes) = median(costs);
        println!(
            "{hosts:>6} hosts, {tenants:>5} tenants: {:>6.1} ms, {count} allocations, {:.1} MB",
            took.as_secs_f64() * 1e3,
            bytes as f64 / 1e6
        );
    }
}
