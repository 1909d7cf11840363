//! Rewrites that mallory asks for: paths of alice's requests stay, and no request takes an Envoy
//! long.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::probe::Answer;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::access::targets;
use crate::compression::of_alice;
use crate::site::{FORWARD, LIMIT, Site, route};

const HOST: &str = "mallory.example.org";
/// What the dearest request may take of an Envoy: `limits.namespace.matchingMicros` on a machine
/// three times as slow, and all that a request of 55 KB takes besides.
const DEAREST: Duration = Duration::from_millis(40);

/// A policy of mallory's.
fn policy(pattern: &str, substitution: &str) -> String {
    let path = json!({"pattern": pattern, "substitution": substitution});
    format!(
        "apiVersion: gatewright.io/v1alpha1\nkind: TrafficPolicy\n\
         metadata: {{name: paths, namespace: mallory}}\n\
         spec: {{targetRefs: [{}], rewrite: {{path: {path}, hostname: {{type: Backend}}}}}}\n",
        targets()
    )
}

fn is_at(path: &str) -> impl Fn(&Answer) -> bool {
    move |answer| answer.echoed("path").is_ok_and(|found| found == path)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_stranger_rewrites_her_own_paths_alone() -> Result<()> {
    let site = Site::start(&[]).await?;
    site.save("mallory-host.yaml", &route("mallory", "own", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    let before = of_alice(&site).await?;
    ensure!(!before.is_empty(), "no scope of alice's host");
    site.save("mallory.yaml", &policy("/(.*)", r"/hers/\1"))?;
    let asked = site.plain(HOST).path("/a");
    site.answered_so(&asked, "rewritten", is_at("/hers/a"))
        .await?;
    for probe in [
        site.plain("alice.example.org"),
        site.tls("alice.example.org"),
    ] {
        let answer = probe.path("/a").send().await?;
        ensure!(is_at("/a")(&answer), "{answer:?}");
        let host = answer.echoed("host")?;
        let host = host.as_str().unwrap_or_default();
        ensure!(host.starts_with("alice.example.org"), "{host}");
    }
    ensure!(of_alice(&site).await? == before, "alice's host changed");
    site.alice_is_unharmed(1).await
}

/// Waits until a policy of mallory's is refused for the time that it would take.
async fn refused(site: &Site, name: &str) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let statuses = site.statuses()?;
        let its = statuses
            .iter()
            .filter(|item| item["kind"] == "TrafficPolicy" && item["metadata"]["name"] == name);
        let told: String = its.map(ToString::to_string).collect();
        if told.contains("microseconds to be rewritten") {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{name} is not refused: {told}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Expressions of which RE2 follows many ways at a time: what is taken is quick, what would not be
/// is refused.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
#[allow(clippy::print_stdout, reason = "what was measured is worth reading")]
async fn no_expression_takes_a_worker_long() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    site.save("mallory-host.yaml", &route("mallory", "own", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    let repeated = |part: &str, times: usize| format!("/{}", part.repeat(times));
    let cases = [
        (repeated("(.*)", 2), 2, true),
        (repeated("(.*)", 9), 9, false),
        (repeated("([ab]*)", 9), 9, false),
        (repeated("(?:.*)", 30) + "(.*)", 1, false),
        (format!("/(?:{})*", "(.?)".repeat(9)), 9, false),
        (format!("/(?:{}|.)*(.*)", "(.)".repeat(9)), 9, false),
        ("/(?:(a)|(b)|(.))*".to_owned(), 3, true),
        ("/(?:a*b*){8}(.*)".to_owned(), 1, false),
        ("/(?:(.*)x?){9}".to_owned(), 1, false),
    ];
    for (at, (pattern, group, is_taken)) in cases.into_iter().enumerate() {
        let name = format!("paths-{at}");
        let policy = policy(&pattern, &format!(r"/new/\{group}")).replace("paths", &name);
        site.save("mallory.yaml", &policy)?;
        if is_taken {
            let asked = site.plain(HOST).path("/a");
            let is_new = |answer: &Answer| {
                let path = answer.echoed("path").unwrap_or_default();
                path.as_str().is_some_and(|path| path.starts_with("/new/"))
            };
            site.answered_so(&asked, "rewritten", is_new).await?;
        } else {
            refused(&site, &name).await?;
        }
        let took = site.dearest_request(&[HOST.to_owned()]).await?;
        println!("{pattern}: taken {is_taken}, the dearest request took {took:?}");
        ensure!(took < DEAREST, "{pattern}: a request took {took:?}");
    }
    site.alice_is_unharmed(1).await
}
