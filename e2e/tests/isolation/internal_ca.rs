//! The internal CA has a root for each registered domain, in limited number: no tenant takes all of
//! them (M5).

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use e2e::port::free_port;
use e2e::probe::Probe;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::site::{LIMIT, Site, named};
use crate::told::manifest;

/// A Gateway of a namespace with a listener for each host, with certificates of the internal CA,
/// and a route to its own backend.
fn gateway(namespace: &str, port: u16, hosts: &[&str]) -> String {
    let listeners: Vec<Value> = hosts
        .iter()
        .enumerate()
        .map(|(index, host)| {
            json!({"name": format!("l{index}"), "protocol": "HTTPS", "port": port, "hostname": host,
            "tls": {"options": {"gatewright.io/issuer": "internal-ca"}}})
        })
        .collect();
    let api = "gateway.networking.k8s.io/v1";
    manifest(&[
        json!({"apiVersion": api, "kind": "Gateway", "metadata": {"name": "own", "namespace": namespace},
            "spec": {"gatewayClassName": "ours", "listeners": listeners}}),
        json!({"apiVersion": api, "kind": "HTTPRoute", "metadata": {"name": "own", "namespace": namespace},
            "spec": {"parentRefs": [{"name": "own"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}),
    ])
}

/// Waits until the statuses of a Gateway's listeners have these words, and returns them.
async fn told(site: &Site, namespace: &str, words: &[&str]) -> Result<String> {
    let until = Instant::now() + LIMIT;
    loop {
        let statuses = site.statuses()?;
        let text = statuses
            .iter()
            .find(|item| item["kind"] == "Gateway" && item["metadata"]["namespace"] == namespace)
            .map(|item| item["status"]["listeners"].to_string())
            .unwrap_or_default();
        if words.iter().all(|word| text.contains(word)) {
            return Ok(text);
        }
        if Instant::now() > until {
            bail!("{namespace} is told {text}\n{}", site.program.output());
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a host is served over TLS at a port by a backend.
async fn served(site: &Site, port: u16, host: &str, backend: &str) -> Result<()> {
    let probe = Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), host);
    let until = Instant::now() + LIMIT;
    while !named(&probe).await.is_ok_and(|found| found == backend) {
        ensure!(
            Instant::now() < until,
            "{host} is not served\n{}",
            site.program.output()
        );
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_tenant_with_many_domains_takes_no_ca_from_others() -> Result<()> {
    let limits = [
        "--set",
        "internalCa.maxDomains=5",
        "--set",
        "internalCa.maxDomainsPerNamespace=2",
    ];
    let site = Site::start(&limits).await?;
    let mallorys = free_port()?;
    let alices = free_port()?;
    let many: Vec<String> = (0..20)
        .map(|number| format!("www.mallory-{number}.com"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    site.save("mallory-gateway.yaml", &gateway("mallory", mallorys, &many))?;
    let words = ["internalCa.maxDomainsPerNamespace is 2"];
    let refused = told(&site, "mallory", &words).await?;
    ensure!(!refused.contains("alice"), "{refused}");
    // There is a CA left for alice, and new hosts of hers in a domain with a CA need none.
    site.save(
        "alice-gateway.yaml",
        &gateway("alice", alices, &["www.alice-shop.com"]),
    )?;
    served(&site, alices, "www.alice-shop.com", "alice").await?;
    site.save(
        "alice-gateway.yaml",
        &gateway(
            "alice",
            alices,
            &["www.alice-shop.com", "new.alice-shop.com"],
        ),
    )?;
    served(&site, alices, "new.alice-shop.com", "alice").await?;
    let bundle = std::fs::read_to_string(site.state.path().join("ca.crt")).context("the bundle")?;
    let roots = bundle.matches("BEGIN CERTIFICATE").count();
    ensure!(
        roots == 4,
        "the roots of example.org, two of mallory's and alice's: {roots}"
    );

    // The same after a restart, and mallory has got no more.
    let site = site.restart()?;
    served(&site, alices, "new.alice-shop.com", "alice").await?;
    told(&site, "mallory", &words).await.map(drop)
}
