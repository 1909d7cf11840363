//! A Secret of alice's own that becomes invalid: the last good certificate stays live.

use anyhow::{Context, Result, ensure};
use e2e::probe::Probe;
use rcgen::{CertificateParams, KeyPair};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::time::{Instant, sleep};

use crate::site::{LIMIT, Site, named};

const HOST: &str = "own.example.org";

/// Makes a certificate for the host and its key, both in PEM.
fn pair(ended: bool) -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![HOST.to_owned()])?;
    if ended {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    }
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn secret(chain: &str, key: &str) -> String {
    let indent = |pem: &str| {
        pem.lines()
            .map(|line| format!("    {line}\n"))
            .collect::<String>()
    };
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: own, namespace: alice}}\ntype: kubernetes.io/tls\n\
         stringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
        indent(chain),
        indent(key)
    )
}

fn gateway(port: u16) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: own, namespace: alice}}\n\
         spec:\n  gatewayClassName: ours\n  listeners:\n  - {{name: own, hostname: {HOST}, protocol: HTTPS, port: {port}, \
         tls: {{certificateRefs: [{{name: own}}]}}}}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: own, namespace: alice}}\n\
         spec:\n  parentRefs: [{{name: own}}]\n  rules: [{{backendRefs: [{{name: web, port: 80}}]}}]\n"
    )
}

/// Waits until one line of `gatewright status` has these words.
async fn told(site: &Site, words: &[&str]) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let (_, text) = site.ask(&["status"])?;
        if text
            .lines()
            .any(|line| words.iter().all(|word| line.contains(word)))
        {
            return Ok(());
        }
        ensure!(Instant::now() < until, "nothing says {words:?}:\n{text}");
        sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn serial(probe: &Probe) -> Result<String> {
    let answer = probe.send().await?;
    ensure!(answer.status == 200, "answered {}", answer.status);
    Ok(format!("{:?}", answer.peer.context("over TLS")?.serial))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_secret_that_turns_bad_is_served_as_it_was_and_says_so() -> Result<()> {
    let site = Site::start(&[]).await?;
    let port = e2e::port::free_port()?;
    let (chain, key) = pair(false)?;
    site.save("own-secret.yaml", &secret(&chain, &key))?;
    site.save("own.yaml", &gateway(port))?;
    let probe = Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), HOST);
    let until = Instant::now() + LIMIT;
    while named(&probe).await.is_err() {
        ensure!(Instant::now() < until, "{}", site.program.output());
        sleep(std::time::Duration::from_millis(50)).await;
    }
    let good = serial(&probe).await?;
    let (_, other_key) = pair(false)?;
    let (ended_chain, ended_key) = pair(true)?;
    for (chain, key, word) in [
        (chain.as_str(), other_key.as_str(), "tls.key does not match"),
        ("garbage", key.as_str(), "tls.crt"),
        (chain.as_str(), "garbage", "tls.key: no private key in PEM"),
        (
            ended_chain.as_str(),
            ended_key.as_str(),
            "expired at 2021-01-01T00:00:00Z",
        ),
    ] {
        site.save("own-secret.yaml", &secret(chain, key))?;
        told(&site, &["alice/own", word, "is served until it ends"]).await?;
        ensure!(
            serial(&probe).await? == good,
            "{word}: another certificate is served"
        );
    }
    // A valid one is served at once, and the message is gone.
    let (chain, key) = pair(false)?;
    site.save("own-secret.yaml", &secret(&chain, &key))?;
    let until = Instant::now() + LIMIT;
    while serial(&probe).await? == good {
        ensure!(Instant::now() < until, "the new certificate is not served");
        sleep(std::time::Duration::from_millis(50)).await;
    }
    let (_, text) = site.ask(&["status"])?;
    ensure!(!text.contains("is served until it ends"), "{text}");
    // A deleted Secret is not served any more.
    site.remove("own-secret.yaml")?;
    told(&site, &["alice/own", "does not exist"]).await?;
    let until = Instant::now() + LIMIT;
    while probe.send().await.is_ok() {
        ensure!(Instant::now() < until, "a deleted Secret is served");
        sleep(std::time::Duration::from_millis(50)).await;
    }
    site.alice_is_unharmed(1).await
}
