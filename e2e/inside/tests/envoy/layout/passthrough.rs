//! TLS passthrough, and TLS termination in front of TCP.

use anyhow::{Context, Result};
use e2e::echo::Echo;
use e2e::probe::{Failure, Probe};
use gatewright_core::model::{AppProtocol, Chain, Cluster, Handler, Target, WeightedTarget};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::site::{Site, backend, host, share};

async fn tls_echo(name: &str) -> Result<Echo> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    Echo::start_tls(name, vec![made.cert.der().clone()], key).await
}

fn pass(handler: Handler) -> Chain {
    Chain { tls: None, handler }
}

fn weighted(name: &str, weight: u32) -> WeightedTarget {
    share(Target::Backend(backend(name, AppProtocol::Tcp)), weight)
}

/// Returns the backend whose certificate was received, or `None` if the connection was refused.
async fn reached(site: &Site, name: &str) -> Result<Option<String>> {
    match Probe::https(site.tls_address(), name).send().await {
        Ok(answer) => Ok(Some(answer.peer.context("TLS")?.dns_names.concat())),
        Err(Failure::Timeout(stage)) => anyhow::bail!("silence at {stage}"),
        Err(_) => Ok(None),
    }
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn bytes_reach_the_backend_that_the_sni_names() -> Result<()> {
    let mut site = Site::new()?;
    let a = tls_echo("a").await?;
    let b = tls_echo("b").await?;
    for (name, address) in [
        ("a", Some(a.address())),
        ("b", Some(b.address())),
        ("none", None),
    ] {
        let hostname = host(&format!("{name}.example.org"));
        let id = site.backend(name, AppProtocol::Tcp, address);
        let port = address.is_some().then_some(id.port);
        let cluster = Cluster::Sni {
            frontend: site.tls.id.clone(),
            hostname: hostname.clone(),
            port,
            settings: None,
        };
        site.cluster(&cluster);
        site.endpoints(cluster.id(), address);
        site.chain("pass", hostname.as_str(), pass(Handler::TcpBySni));
    }
    site.lead("no-cluster.example.org", "pass");
    let _envoy = site.envoy().await?;
    assert_eq!(reached(&site, "a.example.org").await?.as_deref(), Some("a"));
    assert_eq!(reached(&site, "b.example.org").await?.as_deref(), Some("b"));
    for name in ["none", "no-cluster", "not-ours"] {
        assert_eq!(
            reached(&site, &format!("{name}.example.org")).await?,
            None,
            "{name}"
        );
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn weights_of_tcp_backends_and_an_invalid_share() -> Result<()> {
    let mut site = Site::new()?;
    let a = tls_echo("a").await?;
    let b = tls_echo("b").await?;
    site.backend("a", AppProtocol::Tcp, Some(a.address()));
    site.backend("b", AppProtocol::Tcp, Some(b.address()));
    let shares = vec![
        weighted("a", 1),
        weighted("b", 1),
        share(Target::Invalid, 2),
    ];
    site.chain("weighted", "*.example.org", pass(Handler::Tcp(shares)));
    site.chain(
        "nobody",
        "nobody.example.org",
        pass(Handler::Tcp(vec![share(Target::Invalid, 1)])),
    );
    let _envoy = site.envoy().await?;
    let mut to_a = 0;
    let mut to_b = 0;
    let mut refused = 0;
    for _ in 0..400 {
        match reached(&site, "x.example.org").await?.as_deref() {
            Some("a") => to_a += 1,
            Some(_) => to_b += 1,
            None => refused += 1,
        }
    }
    // Five standard deviations around 100, 100 and 200 of 400.
    assert!(
        (57..=143).contains(&to_a) && (57..=143).contains(&to_b) && (150..=250).contains(&refused),
        "{to_a} {to_b} {refused}"
    );
    assert_eq!(reached(&site, "nobody.example.org").await?, None);
    Ok(())
}
