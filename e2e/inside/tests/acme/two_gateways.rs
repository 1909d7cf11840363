//! HTTP-01 for a host of a Gateway that does not have port 80 of its address: another one of its
//! namespace, or one that shares its ports, answers.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use e2e::gatewright::Gatewright;
use e2e::pebble::{Options, Pebble};
use e2e::private_dir::private_dir;
use e2e::probe::{Probe, roots_of};
use e2e_inside::served::PATIENCE;
use e2e_inside::world::free_port;
use tokio::time::{sleep, timeout};

const HOST: &str = "shop.example.com";

/// A Gateway with plain HTTP alone, and one of a namespace with HTTPS alone.
fn site(namespace: &str, parameters: &str, http: u16, https: u16) -> String {
    let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata:";
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: ours}}\nspec:\n  \
         controllerName: gatewright.io/gateway-controller\n  \
         parametersRef: {{group: gatewright.io, kind: GatewayParameters, namespace: default, name: ours}}\n---\n\
         apiVersion: gatewright.io/v1alpha1\nkind: GatewayParameters\nmetadata: {{name: ours}}\n\
         spec: {{{parameters}}}\n---\n\
         {gateway} {{name: edge}}\n\
         spec: {{gatewayClassName: ours, listeners: [{{name: http, protocol: HTTP, port: {http}}}]}}\n---\n\
         {gateway} {{name: second, namespace: {namespace}}}\nspec:\n  gatewayClassName: ours\n  listeners:\n  \
         - {{name: shop, protocol: HTTPS, port: {https}, hostname: {HOST}, \
         tls: {{options: {{gatewright.io/issuer: acme}}}}}}\n"
    )
}

async fn is_issued(namespace: &str, parameters: &str) -> Result<()> {
    let pebble = Pebble::start(&Options::default()).await?;
    let (manifests, state) = (tempfile::tempdir()?, private_dir()?);
    let https = free_port()?;
    let text = site(namespace, parameters, pebble.http_port, https);
    std::fs::write(manifests.path().join("site.yaml"), text)?;
    let bundle = state.path().join("pebble.pem");
    std::fs::write(&bundle, pebble.ca_pem())?;
    let issuer = format!(
        "issuers.acme={{directory: \"{}\", caBundle: \"{}\", agreeToTerms: true, contacts: [\"mailto:a@example.com\"], \
         httpPort: {}, allowedNetworks: [127.0.0.0/8]}}",
        pebble.directory(),
        bundle.display(),
        pebble.http_port
    );
    let program = Gatewright::standalone(manifests.path(), state.path(), &["--set", &issuer])?;
    let roots = roots_of(&pebble.issuing_root(0).await?)?;
    let probe = Probe::https((Ipv4Addr::LOCALHOST, https).into(), HOST).roots(roots);
    let served = async {
        while probe.send().await.is_err() {
            sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, served)
        .await
        .with_context(|| format!("no certificate: {}", program.output()))?;
    // The Gateway that answers serves the host itself no more than before.
    let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, pebble.http_port));
    let status = Probe::http(plain, HOST).send().await?.status;
    anyhow::ensure!([404, 421].contains(&status), "answered {status}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn another_gateway_of_the_namespace_answers_challenges() -> Result<()> {
    is_issued("default", "").await
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn gateways_that_share_ports_answer_challenges_for_all_namespaces() -> Result<()> {
    is_issued("other", "fleet: Shared").await
}
