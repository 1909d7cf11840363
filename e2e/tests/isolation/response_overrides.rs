//! Answers in place of errors that mallory writes: they replace errors of her own hosts alone, and
//! pages of other namespaces are out of her reach.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::probe::Answer;
use tokio::time::{Instant, sleep};

use crate::access::targets;
use crate::site::{FORWARD, LIMIT, Site, route};

const HOST: &str = "mallory.example.org";

fn pages(namespace: &str, text: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: pages, namespace: {namespace}}}\n\
         data: {{response.body: \"{text}\"}}\n---\n"
    )
}

/// A policy of mallory's for objects of these kinds and names, with the page of a ConfigMap.
fn policy(map: &str) -> String {
    format!(
        "apiVersion: gatewright.io/v1alpha1\nkind: TrafficPolicy\n\
         metadata: {{name: pages, namespace: mallory}}\n\
         spec:\n  targetRefs: [{}]\n  responseOverride:\n\
         \x20 - match: {{statusCodes: [{{type: Range, range: {{start: 400, end: 599}}}}]}}\n\
         \x20   response: {{body: {{type: ValueRef, valueRef: {{kind: ConfigMap, name: {map}}}}}}}\n",
        targets()
    )
}

/// Waits until the status says that mallory has no ConfigMap of this name, and returns it.
async fn refused(site: &Site, name: &str) -> Result<String> {
    let until = Instant::now() + LIMIT;
    let wanted = format!("ConfigMap mallory/{name} does not exist");
    loop {
        let (_, told) = site.ask(&["status", "trafficpolicy/pages", "-n", "mallory"])?;
        if told.contains(&wanted) {
            return Ok(told);
        }
        ensure!(Instant::now() < until, "{wanted}: {told}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_stranger_replaces_errors_of_her_own_hosts_alone() -> Result<()> {
    let site = Site::start(&[]).await?;
    site.save("mallory-host.yaml", &route("mallory", "own", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    site.save("secret.yaml", &pages("alice", "of alice"))?;
    // Alice has a ConfigMap of that name, and mallory none: a name has no slash.
    for name in ["pages", "alice/pages"] {
        site.save("mallory.yaml", &policy(name))?;
        let told = refused(&site, name).await?;
        ensure!(!told.contains("of alice"), "{told}");
        let answer = site.plain(HOST).path("/status/503").send().await?;
        ensure!(answer.echoed("name")? == "mallory", "{answer:?}");
    }
    site.save("mallory.yaml", &policy("pages"))?;
    site.save("pages.yaml", &pages("mallory", "of mallory"))?;
    let error = site.plain(HOST).path("/status/503");
    let is_hers = |answer: &Answer| answer.body == b"of mallory"[..];
    site.answered_so(&error, "hers", is_hers).await?;
    for probe in [
        site.plain("alice.example.org"),
        site.tls("alice.example.org"),
    ] {
        let answer = probe.path("/status/503").send().await?;
        ensure!(answer.status == 503, "{answer:?}");
        ensure!(answer.echoed("name")? == "alice", "{answer:?}");
    }
    site.alice_is_unharmed(1).await
}
