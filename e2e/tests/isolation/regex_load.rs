//! Requests to regular expressions: an Envoy keeps no more than was counted, and a request takes no
//! worker for longer than some milliseconds.
//!
//! Before, 64 expressions and six requests of 55 KB took all workers for minutes, and 320 with
//! three requests of 6 KB took 1.1 GB for ever.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::dimensions::QuotaUse;
use serde_json::{Value, json};

use crate::site::{FORWARD, Site, route};
use crate::told::{http_route, manifest};

const MIB: u64 = 1 << 20;
/// What an Envoy grows by itself, with requests of 55 KB.
const NOISE: u64 = 16 * MIB;
/// What the dearest request may take of an Envoy: `limits.namespace.matchingMicros` on a machine
/// three times as slow, and all that a request of 55 KB takes besides.
const DEAREST: Duration = Duration::from_millis(40);

pub(crate) fn path(text: &str) -> Value {
    json!({"path": {"type": "RegularExpression", "value": text}})
}

fn of_header(text: &str) -> Value {
    json!({"headers": [{"type": "RegularExpression", "name": "x-a", "value": text}]})
}

fn of_query(text: &str) -> Value {
    json!({"queryParams": [{"type": "RegularExpression", "name": "q", "value": text}]})
}

/// Routes of mallory's, each with these matches at a host of its own.
fn routes(matches: &[Vec<Value>]) -> Vec<Value> {
    let routes = matches.iter().enumerate().map(|(at, matches)| {
        let rules = json!([{"matches": matches, "backendRefs": [{"name": "web", "port": 80}]}]);
        http_route("mallory", &format!("r{at}"), &[host(at)], &rules)
    });
    routes.collect()
}

/// Expressions of which each byte of a text makes a state.
fn bombs(number: usize) -> Vec<String> {
    (0..number).map(|at| format!("/.*a.{{300}}c{at}")).collect()
}

/// As many conditions as one request may be compared with, of the largest expressions.
pub(crate) fn large(of: fn(&str) -> Value) -> Vec<Value> {
    (0..8)
        .map(|at| of(&format!("/?(?:z{at})?.*a.{{8}}")))
        .collect()
}

fn host(at: usize) -> String {
    format!("h{at}.load.test")
}

fn hosts(number: usize) -> Vec<String> {
    (0..number).map(host).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn expressions_that_requests_make_large_are_refused() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    let before = site.envoy_resident()?;
    let all: Vec<Value> = bombs(64).iter().map(|text| path(text)).collect();
    let header: Vec<Value> = bombs(64).iter().map(|text| of_header(text)).collect();
    let query: Vec<Value> = bombs(64).iter().map(|text| of_query(text)).collect();
    let number = [all, header, query];
    site.save("mallory.yaml", &manifest(&routes(&number)))?;
    for at in 0..number.len() {
        let name = format!("r{at}");
        site.told(
            "mallory",
            &name,
            "has more states than Envoy could keep in 320 KiB",
        )
        .await?;
    }
    site.alice_is_unharmed(0).await?;
    let dearest = site.dearest_request(&hosts(number.len())).await?;
    ensure!(dearest < DEAREST, "a request took {dearest:?}");
    let grown = site.envoy_resident()?.saturating_sub(before);
    ensure!(grown < NOISE, "Envoy grew by {} MiB", grown / MIB);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
#[allow(clippy::print_stdout, reason = "what was measured is worth reading")]
async fn expressions_at_their_limits_take_what_was_counted() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    // As many hosts as there are expressions for.
    let of: [fn(&str) -> Value; 3] = [path, of_header, of_query];
    let of_hosts: Vec<Vec<Value>> = (0..96).map(|at| large(of[at % 3])).collect();
    let all = routes(&of_hosts);
    site.save("mallory.yaml", &manifest(&all))?;
    site.told("mallory", "r95", "Accepted=True").await?;
    let matching = site.plain(&host(95)).path("/?q=aaaaaaaaaa");
    site.answered_with(&matching, 200).await?;
    let counted = QuotaUse::read(&site.admin("/metrics").await?, "mallory").envoy;
    let before = site.envoy_resident()?;
    let dearest = site.dearest_request(&hosts(of_hosts.len())).await?;
    let grown = site.envoy_resident()?.saturating_sub(before);
    println!(
        "counted {} MiB, grew by {} MiB, the dearest request {dearest:?}",
        counted / MIB,
        grown / MIB
    );
    ensure!(
        grown > 16 * MIB,
        "the requests made {} MiB of states",
        grown / MIB
    );
    ensure!(
        grown < counted + NOISE,
        "{} MiB were counted, Envoy grew by {}",
        counted / MIB,
        grown / MIB
    );
    ensure!(dearest < DEAREST, "a request took {dearest:?}");
    // One more expression at one of the hosts is one too many, also in another route.
    let rules = r#"[{matches: [{path: {type: RegularExpression, value: "/.*a.{8}"}}], backendRefs: [{name: web, port: 80}]}]"#;
    site.save("mallory-more.yaml", &route("mallory", "z", &host(0), rules))?;
    site.told(
        "mallory",
        "z",
        "limits.namespace.matchingMicros 10000 at hostname h0.load.test",
    )
    .await?;
    site.save(
        "mallory-more.yaml",
        &route("mallory", "z", &host(0), FORWARD),
    )?;
    site.answered_with(&site.plain(&host(0)), 200).await?;
    site.alice_is_unharmed(0).await
}
