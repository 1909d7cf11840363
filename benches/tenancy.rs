//! Benchmark of tenancy: one route event among many hosts and tenants. For a start see `start.rs`.
//!
//! `cargo bench --bench tenancy`. Prints medians of CPU time and allocations; that cost does not
//! grow is asserted by counters in `src/core/tenancy/confluence.rs` and `tests/pipeline.rs`.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::alloc::System;
use std::time::{Duration, Instant, SystemTime};

use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::tenancy::{self, Settings, Tenancy};
use gatewright_core::translate::Change;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tenants::{all, changes, object, route};

mod tenants;

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Duration of a step, its allocations and their bytes.
type Cost = (Duration, usize, usize);

fn cost<T>(step: impl FnOnce() -> T) -> (Cost, T) {
    let region = Region::new(GLOBAL);
    let start = Instant::now();
    let made = step();
    let took = start.elapsed();
    let used = region.change();
    (
        (
            took,
            used.allocations + used.reallocations,
            used.bytes_allocated,
        ),
        made,
    )
}

fn median(mut all: Vec<Cost>) -> Cost {
    all.sort();
    all[all.len() / 2]
}

fn cell((took, count, bytes): Cost) -> String {
    format!(
        "{:>6.1} us {count:>5} allocs {:>6.1} KB",
        took.as_secs_f64() * 1e6,
        bytes as f64 / 1e3
    )
}

const ROUNDS: usize = 101;

fn main() {
    println!("one route added, then removed: median of {ROUNDS}");
    println!(
        " hosts | tenants | mode           | tenancy alone: added              | removed                           | both stages: added"
    );
    for mode in ["http01", "existingSecret"] {
        for (hosts, tenants) in [
            (100, 10),
            (1_000, 10),
            (10_000, 10),
            (100, 1_000),
            (1_000, 1_000),
            (10_000, 1_000),
        ] {
            let mut first = Tenancy::new(Settings::default());
            first.apply(changes(all(hosts, tenants, mode)));
            let settings = gatewright_core::translate::Settings::new(
                "ours",
                vec!["127.0.0.1".parse().expect("an address")],
            );
            let settings = gatewright_core::translate::Settings {
                limits: gatewright_core::limits::Limits::NONE,
                ..settings
            };
            let mut both = Pipeline::new(settings, Settings::default(), Written::Here);
            let puts = all(hosts, tenants, mode)
                .into_iter()
                .map(Change::put)
                .collect();
            both.apply(puts, SystemTime::UNIX_EPOCH);
            let mut rows: [Vec<Cost>; 3] = Default::default();
            for n in hosts..hosts + ROUNDS {
                let add = changes(vec![object(route(n))]);
                let remove = add.iter().map(|change| match change {
                    tenancy::Change::Claimant(key, _) => {
                        tenancy::Change::Claimant(key.clone(), None)
                    }
                    other => other.clone(),
                });
                let remove = remove.collect();
                rows[0].push(cost(|| first.apply(add)).0);
                rows[1].push(cost(|| first.apply(remove)).0);
                let put = Change::put(object(route(n)));
                let key = object(route(n)).key();
                rows[2].push(cost(|| both.apply(vec![put], SystemTime::UNIX_EPOCH)).0);
                both.apply(vec![Change::delete(key)], SystemTime::UNIX_EPOCH);
            }
            let cells: Vec<String> = rows.into_iter().map(median).map(cell).collect();
            println!(
                "{hosts:>6} | {tenants:>7} | {mode:<14} | {}",
                cells.join(" | ")
            );
        }
    }
}
