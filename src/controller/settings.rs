//! What the configuration says, as the parts of the program have it.

use std::net::IpAddr;

use anyhow::{Result, bail};
use gatewright_core::ownership::Recording;
use gatewright_core::tenancy;

use super::CHALLENGES;
use crate::cli;
use crate::configuration::Configuration;

/// Returns the settings of tenancy in a cluster.
pub(super) fn tenancy_settings(
    options: &cli::Controller,
    configuration: &Configuration,
) -> tenancy::Settings {
    let solver = tenancy::SolverService {
        namespace: options.namespace.as_str().into(),
        name: CHALLENGES.to_owned(),
        port: 80,
        answers: options.challenges.is_some(),
    };
    tenancy::Settings {
        solver: Some(solver),
        certificates: configuration.tenancy.certificates.source(),
        directories: configuration.tenant_directories(),
        ..configuration.tenancy.settings(Recording::OtherProcess)
    }
}

/// Checks that no issuer needs what a cluster does not have.
pub(super) fn check_issuers(configuration: &Configuration) -> Result<()> {
    let mut issuers = configuration.issuers.iter();
    if let Some((name, _)) = issuers.find(|(_, settings)| settings.tls_alpn_port.is_some()) {
        bail!(
            "issuers.{name}.tlsAlpnPort: TLS-ALPN-01 is not answered in a cluster: use HTTP-01 or DNS-01"
        );
    }
    Ok(())
}

/// Returns the addresses of the fleet, each once.
pub(super) fn addresses(given: &[IpAddr]) -> Vec<IpAddr> {
    let mut addresses = given.to_vec();
    addresses.sort();
    addresses.dedup();
    addresses
}
