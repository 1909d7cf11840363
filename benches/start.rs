//! Benchmark of a start: all objects at once, from nothing, with the allocator of the program.
//!
//! `cargo bench --bench start [-- tenancy]`, the latter for the first stage alone. Prints processor
//! time, the median of 7; this benchmark is the most sensitive to slow memory of the machine.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

mod tenants;

use std::time::{Duration, SystemTime};

use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::tenancy::{Settings, Tenancy};
use gatewright_core::translate::Change;
use tenants::{all, changes};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Returns the time of this thread on a processor: others use the machine too, and the step is long
/// enough for the scheduler's accounting.
fn on_processor() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    let nanoseconds = told
        .split_whitespace()
        .next()
        .and_then(|text| text.parse().ok())
        .expect("a number");
    Duration::from_nanos(nanoseconds)
}

fn median(step: impl Fn() -> Duration) -> f64 {
    let mut all: Vec<Duration> = (0..7).map(|_| step()).collect();
    all.sort();
    all[all.len() / 2].as_secs_f64() * 1e3
}

fn main() {
    println!(" hosts | tenants | tenancy alone ms | both stages ms");
    for (hosts, tenants) in [(1_000, 1), (10_000, 1), (10_000, 1_000)] {
        let given = changes(all(hosts, tenants, "http01"));
        let first = median(|| {
            let (given, mut engine) = (given.clone(), Tenancy::new(Settings::default()));
            let before = on_processor();
            let delta = engine.apply(given);
            let took = on_processor() - before;
            assert!(delta.objects.len() >= hosts, "a Certificate for each host");
            took
        });
        if std::env::args().any(|argument| argument == "tenancy") {
            println!("{hosts:>6} | {tenants:>7} | {first:>16.1} |");
            continue;
        }
        let puts: Vec<Change> = all(hosts, tenants, "http01")
            .into_iter()
            .map(Change::put)
            .collect();
        let both = median(|| {
            let settings = gatewright_core::translate::Settings::new(
                "ours",
                vec!["127.0.0.1".parse().expect("an address")],
            );
            let settings = gatewright_core::translate::Settings {
                limits: gatewright_core::limits::Limits::NONE,
                ..settings
            };
            let mut both = Pipeline::new(settings, Settings::default(), Written::Here);
            let puts = puts.clone();
            let before = on_processor();
            both.apply(puts, SystemTime::UNIX_EPOCH);
            on_processor() - before
        });
        println!("{hosts:>6} | {tenants:>7} | {first:>16.1} | {both:>14.1}");
    }
}
