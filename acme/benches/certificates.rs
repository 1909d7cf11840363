//! Benchmark of certificates: planning 50,000 of them, and the internal CA issuing 10,000.
//!
//! `cargo bench -p acme --bench certificates [-- plan|sign]`. Prints medians; the CA's time
//! includes the generation of each key.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use acme::budget::{Budget, Limits};
use acme::internal_ca::{Constraints, InternalCa, InternalCaConfig};
use acme::plan::{Budgets, Held, Step, Wanted, plan};
use acme::{CertificateId, Names};
use jiff::{SignedDuration, Timestamp};

const PLANNED: usize = 50_000;
const ISSUED: usize = 10_000;
const RUNS: usize = 15;

fn main() {
    let now: Timestamp = "2026-11-21T00:00:00Z".parse().expect("a time");
    let want = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    if want.as_deref() != Some("sign") {
        planning(now, true);
        planning(now, false);
    }
    if want.as_deref() != Some("plan") {
        signing(now);
    }
}

/// `shared`: held and wanted names share memory, as after issuance; else not, as after a restart.
fn planning(now: Timestamp, shared: bool) {
    let wanted: Vec<Wanted> = (0..PLANNED)
        .map(|i| {
            let names = Names::parse([format!("h{i}.example{}.com", i / 10)]).expect("a name");
            Wanted {
                id: CertificateId::of("t", &names),
                tenant: "t".to_owned(),
                issuer: "le".to_owned(),
                names,
                validity: None,
                may_share: true,
                renew_now: false,
                hold: None,
            }
        })
        .collect();
    let held: Vec<Held> = wanted
        .iter()
        .enumerate()
        .map(|(i, w)| Held {
            id: if shared {
                w.id.clone()
            } else {
                CertificateId::parse(w.id.as_str()).expect("it is one")
            },
            tenant: w.tenant.clone(),
            issuer: w.issuer.clone(),
            names: if shared {
                w.names.clone()
            } else {
                Names::parse(w.names.to_strings()).expect("names")
            },
            // Their ages are spread: some are due.
            not_before: now
                - SignedDuration::from_mins((i as i64) * 90 * 24 * 60 * 7 / 10 / (PLANNED as i64)),
            not_after: now + SignedDuration::from_hours(90 * 24)
                - SignedDuration::from_mins((i as i64) * 90 * 24 * 60 * 7 / 10 / (PLANNED as i64)),
            ari_id: Some(format!("aki.{i}")),
            window: None,
            refused: false,
        })
        .collect();
    let budgets = Budgets::from([("le".to_owned(), Budget::new(Limits::LETS_ENCRYPT))]);
    let mut issue = 0;
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            let steps = black_box(plan(black_box(&wanted), black_box(&held), &budgets, now));
            let took = start.elapsed();
            issue = steps.iter().filter(|s| matches!(s, Step::Issue(_))).count();
            took
        })
        .collect();
    times.sort();
    let whence = if shared {
        "got by this process"
    } else {
        "read from storage"
    };
    println!(
        "plan {PLANNED} certificates {whence} ({issue} due): {:.1} ms",
        times[RUNS / 2].as_secs_f64() * 1e3
    );
}

fn signing(now: Timestamp) {
    let dir = tempfile::tempdir().expect("a directory");
    let permit = Constraints::permit(["example.internal"]).expect("a domain");
    let ca = InternalCa::open(
        InternalCaConfig::new("internal", dir.path().join("ca"), permit),
        now,
    )
    .expect("opens");
    let start = Instant::now();
    for i in 0..ISSUED {
        let names = Names::parse([format!("h{i}.example.internal")]).expect("a name");
        black_box(ca.sign(&names, None, now).expect("signs"));
    }
    let took = start.elapsed();
    println!(
        "internal CA, {ISSUED} certificates, one thread: {:.1} s, {:.2} ms each",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e3 / ISSUED as f64
    );
}
