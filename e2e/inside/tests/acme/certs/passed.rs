//! Passthrough: connections that are passed through keep their own TLS-ALPN-01 challenges.

use std::sync::Arc;
use std::time::Duration;

use acme::challenge::Solvers;
use acme::engine::{AcmeConfig, AcmeIssuer};
use acme::storage::dir::Directory;
use acme::{CertificateId, IssueRequest, Issuer, Names};
use anyhow::{Result, bail, ensure};
use e2e_inside::responders::{AlpnResponder, roots_of};
use e2e_inside::world::free_port;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::site::{LIMIT, Site};

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn a_backend_proves_its_own_name_through_the_port_where_ours_are_proven() -> Result<()> {
    let mut site = Site::new().await?;
    site.port = site.pebble.tls_port;
    let option = format!("--set=issuers.acme.tlsAlpnPort={}", site.port);
    site.start(&[&option])?;
    let port = free_port()?;
    let backend = Arc::new(AlpnResponder::start(port).await?);
    site.save(
        "passed.yaml",
        &format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: own}}\nspec: {{ports: [{{port: 443}}]}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: own, labels: {{kubernetes.io/service-name: own}}}}\naddressType: IPv4\n\
             endpoints: [{{addresses: [127.0.0.1]}}]\nports: [{{port: {port}}}]\n---\n\
             apiVersion: gateway.networking.k8s.io/v1\nkind: TLSRoute\nmetadata: {{name: own}}\nspec:\n  \
             parentRefs: [{{name: edge, sectionName: passed}}]\n  hostnames: [own.example.com]\n  rules:\n  \
             - backendRefs: [{{name: own, port: 443}}]\n"
        ),
    )?;
    let passed = format!(
        "  - {{name: passed, hostname: own.example.com, protocol: TLS, port: {}, tls: {{mode: Passthrough}}}}\n",
        site.port
    );
    site.publish_beside(&[("a.example.com", "acme")], &passed)?;
    ensure!(site.served("a.example.com").await?.status == 200);

    // The backend's own ACME client, with an account of its own: only the backend can answer its
    // challenges.
    let mut config = AcmeConfig::new("own", &site.pebble.directory());
    config.roots = roots_of(&site.pebble);
    config.registration.terms_agreed = true;
    config.solvers = Solvers {
        alpn: Some(backend.clone()),
        ..Solvers::default()
    };
    let state = tempfile::tempdir()?;
    let issuer = AcmeIssuer::open(
        config,
        Arc::new(Directory::open(state.path().join("acme"))?),
    )
    .await?;
    let names = Names::parse(["own.example.com"])?;
    let request = IssueRequest::new(CertificateId::of("own", &names), names, Timestamp::now());
    let until = Instant::now() + LIMIT;
    loop {
        match issuer.issue(&request).await {
            Ok(_) => break,
            // Its backend may become known to Envoy a moment after the listener.
            Err(failure) if Instant::now() > until => bail!("{failure}"),
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
    ensure!(site.pebble.issued() == 2 && backend.shown() == 0);
    // Our own names can still be proven afterwards.
    let (code, text) = site.ask(&["certs", "renew", "a.example.com"])?;
    ensure!(code == 0, "{text}");
    let until = Instant::now() + LIMIT;
    while site.pebble.issued() < 3 {
        ensure!(Instant::now() < until, "not renewed");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
