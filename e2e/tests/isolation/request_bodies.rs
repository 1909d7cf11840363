//! Limits of bodies that mallory asks for: bodies of alice's requests pass, and what an Envoy has
//! for alice's host stays the same to the byte.

use anyhow::{Result, ensure};
use e2e::probe::{Answer, Probe};
use hyper::Method;

use crate::access::targets;
use crate::compression::of_alice;
use crate::site::{FORWARD, Site, route};

const HOST: &str = "mallory.example.org";

/// A policy of mallory's for objects of these kinds and names, with so many bytes.
fn policy(bytes: u32) -> String {
    format!(
        "apiVersion: gatewright.io/v1alpha1\nkind: TrafficPolicy\n\
         metadata: {{name: bodies, namespace: mallory}}\n\
         spec: {{targetRefs: [{}], requestBody: {{maxBytes: {bytes}}}}}\n",
        targets()
    )
}

fn upload(probe: Probe, bytes: usize) -> Probe {
    probe
        .method(Method::POST)
        .body_of_unknown_length(vec![b'x'; bytes])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_stranger_limits_bodies_of_her_own_hosts_alone() -> Result<()> {
    let site = Site::start(&[]).await?;
    site.save("mallory-host.yaml", &route("mallory", "own", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    let before = of_alice(&site).await?;
    ensure!(!before.is_empty(), "no scope of alice's host");
    site.save("mallory.yaml", &policy(1000))?;
    let large = upload(site.plain(HOST), 100_000);
    let is_refused = |answer: &Answer| answer.status == 413;
    site.answered_so(&large, "refused", is_refused).await?;
    for probe in [
        site.plain("alice.example.org"),
        site.tls("alice.example.org"),
    ] {
        let answer = upload(probe, 100_000).send().await?;
        ensure!(answer.status == 200, "{answer:?}");
    }
    ensure!(of_alice(&site).await? == before, "alice's host changed");
    site.alice_is_unharmed(1).await
}
