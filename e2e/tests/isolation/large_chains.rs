//! Hundreds of mallory's hosts with a chain of 1 MiB, and with one of the largest size that is
//! served: Envoy's memory.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use e2e::probe::Probe;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::site::{LIMIT, Site, named};
use crate::told::manifest;

const GATEWAYS: usize = 8;
const LISTENERS: usize = 64;
const MIB: u64 = 1 << 20;

fn host(number: usize) -> String {
    format!("h{number}.mallory.example.net")
}

/// A Secret with a certificate for all hosts, and as many others after it in its chain.
fn secret(others: usize) -> Result<Value> {
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(vec!["*.mallory.example.net".to_owned()])?
        .self_signed(&key)?
        .pem();
    let mut chain = leaf;
    for number in 0..others {
        let mut params = CertificateParams::new(vec![format!("ca-{number}.example.net")])?;
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        chain += &params.self_signed(&key)?.pem();
    }
    Ok(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "large", "namespace": "mallory"},
        "stringData": {"tls.crt": chain, "tls.key": key.serialize_pem()}}),
    )
}

/// Gateways at these ports with a listener for each host, and a route.
fn gateways(ports: &[u16]) -> Vec<Value> {
    let gateway = |(number, port): (usize, &u16)| {
        let listeners: Vec<Value> = (number * LISTENERS..(number + 1) * LISTENERS)
            .map(|number| {
                json!({"name": format!("l{number}"), "protocol": "HTTPS", "port": port, "hostname": host(number),
                    "tls": {"certificateRefs": [{"name": "large"}]}})
            })
            .collect();
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": format!("g{number}"), "namespace": "mallory"},
            "spec": {"gatewayClassName": "ours", "listeners": listeners}})
    };
    let parents: Vec<Value> = (0..GATEWAYS)
        .map(|number| json!({"name": format!("g{number}")}))
        .collect();
    let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "large", "namespace": "mallory"},
        "spec": {"parentRefs": parents, "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}});
    ports
        .iter()
        .enumerate()
        .map(gateway)
        .chain([route])
        .collect()
}

/// Waits until the status of every Gateway of mallory's contains this text.
async fn all_say(site: &Site, text: &str) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let statuses = site.statuses()?;
        let hers: Vec<&Value> = statuses
            .iter()
            .filter(|item| item["kind"] == "Gateway" && item["metadata"]["namespace"] == "mallory")
            .collect();
        if hers.len() == GATEWAYS
            && hers
                .iter()
                .filter(|item| item["status"].to_string().contains(text))
                .count()
                == GATEWAYS
        {
            return Ok(());
        }
        ensure!(Instant::now() < until, "not all say {text:?}: {hers:?}");
        sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_chain_of_a_mebibyte_costs_envoy_nothing_and_its_gateway_says_why() -> Result<()> {
    let site = Site::start(&[]).await?;
    let ports = (0..GATEWAYS)
        .map(|_| e2e::port::free_port())
        .collect::<Result<Vec<u16>>>()?;
    let probe = |number| {
        Probe::https(
            SocketAddr::from((Ipv4Addr::LOCALHOST, ports[number / LISTENERS])),
            &host(number),
        )
    };
    let large = secret(1_650)?;
    let size = large.to_string().len();
    ensure!(
        size > 900_000 && size < 1_048_576,
        "{size} bytes, as much as a Secret holds"
    );
    site.save("mallory-secret.yaml", &manifest(&[large]))?;
    site.save("mallory-large.yaml", &manifest(&gateways(&ports)))?;
    all_say(&site, "tls.crt: 1651 certificates, a chain may have 10").await?;
    all_say(&site, "InvalidCertificateRef").await?;
    let before = site.envoy_resident()?;
    for number in 0..GATEWAYS * LISTENERS {
        ensure!(
            probe(number).send().await.is_err(),
            "{} is served",
            host(number)
        );
    }
    let grown = site.envoy_resident()?.saturating_sub(before);
    ensure!(grown < 50 * MIB, "Envoy has grown by {} MiB", grown / MIB);

    // As many certificates as a chain may have are served.
    site.save("mallory-secret.yaml", &manifest(&[secret(9)?]))?;
    for number in [0, GATEWAYS * LISTENERS - 1] {
        let until = Instant::now() + LIMIT;
        while named(&probe(number)).await.is_err() {
            ensure!(Instant::now() < until, "{}", site.program.output());
            sleep(std::time::Duration::from_millis(50)).await;
        }
    }
    // One more is not, and the good one is served meanwhile.
    site.save("mallory-secret.yaml", &manifest(&[secret(10)?]))?;
    all_say(&site, "tls.crt: 11 certificates, a chain may have 10").await?;
    all_say(&site, "is served until it ends").await?;
    named(&probe(1)).await?;
    site.alice_is_unharmed(1).await
}
