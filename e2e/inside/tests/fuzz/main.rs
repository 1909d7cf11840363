//! The fuzz targets on the kept corpus and on mutations of it.
//!
//! `cargo test` runs some cases of each target, the same each time; `make fuzz SECONDS=60` those of
//! a seed, for as long as one likes. An input that fails is made smaller and written to
//! `e2e/fuzz/corpus`, whose inputs are run first.
#![allow(clippy::print_stderr, reason = "how many cases there were")]

use std::collections::BTreeSet;
use std::time::Duration;

use e2e_inside::fuzz::{Run, TARGETS, all_kinds, corpus, kinds, target};

/// As many cases of a target are run where nothing else is said.
fn run(name: &str, cases: u64) {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().expect("a number"))
    };
    let seed = number("GATEWRIGHT_FUZZ_SEED").unwrap_or_else(|| std::process::id().into());
    let run = match number("GATEWRIGHT_FUZZ_SECONDS") {
        Some(seconds) => Run::For(Duration::from_secs(seconds), seed),
        None => Run::Cases(cases),
    };
    let cases = run.of(target(name));
    assert!(cases > 0, "some case was run");
    eprintln!("{name}: {cases} cases of {run:?}");
}

#[test]
fn any_objects_end_in_the_state_of_a_start_from_nothing() {
    run("objects", 200);
}

#[test]
fn any_file_is_read_or_reported_in_a_line() {
    run("manifests", 300);
}

#[test]
fn any_request_of_an_xds_client_is_survived() {
    run("xds_request", 2_000);
}

#[test]
fn any_conversation_of_an_xds_client_stays_in_bounds_and_ends() {
    run("xds_conversation", 2_000);
}

#[test]
fn a_lookup_ends_for_any_answers_of_dns_servers() {
    run("dns", 300);
}

#[test]
fn an_order_ends_for_any_answers_of_a_ca_and_proves_nothing_else() {
    run("ca", 60);
}

#[test]
fn envoy_gets_certificates_for_any_content_of_secrets() {
    run("certificates", 1_000);
}

/// A target without inputs, or a kind of objects without any, would pass whatever it does.
#[test]
fn each_target_has_a_corpus_and_each_kind_an_object() {
    let mut bytes = 0;
    for target in &TARGETS {
        let inputs = corpus(target);
        assert!(!inputs.is_empty(), "{} has no corpus", target.name);
        bytes += inputs.iter().map(|(_, data)| data.len()).sum::<usize>();
    }
    assert!(
        bytes < 1 << 20,
        "the corpus has {bytes} bytes; `cargo fuzz cmin` makes it smaller"
    );
    let objects = target("objects");
    let inputs = (objects.seeds)()
        .into_iter()
        .chain(corpus(objects).into_iter().map(|(_, data)| data));
    let there: BTreeSet<String> = inputs.flat_map(|data| kinds(&data)).collect();
    let missing: Vec<_> = all_kinds()
        .into_iter()
        .filter(|kind| !there.contains(kind))
        .collect();
    assert_eq!(missing, [""; 0], "kinds without an object");
}
