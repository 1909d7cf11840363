//! cert-manager's own controllers beside the chart's installation.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::probe::{Probe, roots_of};

use super::cluster::{address, objects, until_served};

/// A TenantGateway serves the wildcard certificate that cert-manager keeps in its namespace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn a_tenant_is_served_with_a_certificate_of_cert_manager() -> Result<()> {
    let secret = objects(&["secret", "wildcard", "-n", "tenant-carol"])?
        .pop()
        .context("a Secret")?;
    let ca = secret["data"]["ca.crt"]
        .as_str()
        .context("the certificate of its CA")?;
    let roots = roots_of(&String::from_utf8(STANDARD.decode(ca)?)?)?;
    until_served(&Probe::https(address()?, "shop.carol.example.org").roots(roots)).await
}
