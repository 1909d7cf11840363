//! TLS of a client that verifies servers by a file of CA certificates.

use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::{ClientConfig, RootCertStore};

/// Returns the settings of a client that trusts these CA certificates, in PEM, and no others.
pub(crate) fn trusting(roots: &str) -> Result<ClientConfig> {
    let mut trusted = RootCertStore::empty();
    for root in pki::bundle(roots.as_bytes()).context("the CA certificates")? {
        trusted.add(root).context("the CA certificates")?;
    }
    with(trusted)
}

/// Returns the settings of a client that trusts nobody.
pub(crate) fn nobody() -> Result<ClientConfig> {
    with(RootCertStore::empty())
}

fn with(trusted: RootCertStore) -> Result<ClientConfig> {
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(trusted)
            .with_no_client_auth();
    Ok(config)
}
