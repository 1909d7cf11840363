//! What the configuration says, as the parts of the program have it.

use std::net::IpAddr;

use anyhow::{Result, bail};
use gatewright_core::model::ObjectName;
use gatewright_core::ownership::Recording;
use gatewright_core::tenancy;
use gatewright_core::translate::{EndpointPolicy, Fleet, Settings, Unlisted};

use super::CHALLENGES;
use crate::configuration::Configuration;

/// Returns the settings of the translation in a cluster, for an installation in this namespace.
pub(crate) fn translation_settings(namespace: &str, configuration: &Configuration) -> Settings {
    Settings {
        fleet: Fleet::Shared,
        envoys: Some(ObjectName::new(
            namespace,
            configuration.envoys.service.as_str(),
        )),
        dedicated: configuration.envoys.dedicated(namespace),
        isolated: configuration
            .envoys
            .isolated_pod_template
            .as_ref()
            .map(|_| namespace.into()),
        bind: configuration.envoys.bind.clone(),
        limits: configuration.limits.clone(),
        channel: configuration.gateway_api.channel,
        recording: Recording::OtherProcess,
        hold: configuration.tenancy.hold(),
        issuers: configuration.issuer_policy(Unlisted::Nobody),
        endpoints: EndpointPolicy {
            loopback: false,
            denied: configuration.backends.denied_networks(),
        },
        external_names: configuration.backends.external_names.policy(),
        system_roots: configuration.backends.system_roots(),
        tenants: configuration.tenancy.enabled,
        named_hosts: configuration.envoys.traffic_metrics.need_owners(),
        namespaces: configuration.watched(namespace),
        ..Settings::new(
            configuration.gateway_api.controller_name.as_str(),
            addresses(&configuration.envoys.addresses),
        )
    }
}

/// Returns the settings of tenancy in a cluster; `answers` is true if challenges of Gateways of
/// other data planes are answered.
pub(crate) fn tenancy_settings(
    namespace: &str,
    answers: bool,
    configuration: &Configuration,
) -> tenancy::Settings {
    let solver = tenancy::SolverService {
        namespace: namespace.into(),
        name: CHALLENGES.to_owned(),
        port: 80,
        answers,
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
fn addresses(given: &[IpAddr]) -> Vec<IpAddr> {
    let mut addresses = given.to_vec();
    addresses.sort();
    addresses.dedup();
    addresses
}
