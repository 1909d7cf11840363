//! TenantGateways, and the hostnames of tenants.

use std::collections::BTreeMap;
use std::sync::Arc;

use acme::DeniedNetworks;
use garde::Validate;
use gatewright_control::certificates::Network;
use gatewright_core::model::Hostname;
use gatewright_core::ownership::Recording;
use gatewright_core::tenancy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TenantGateways, and the hostnames of tenants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Tenancy {
    /// Whether TenantGateways are reconciled; false if another controller does
    pub enabled: bool,
    /// GatewayClass of the Gateways of TenantGateways without gatewayClassName
    pub gateway_class: String,
    /// Port of plain HTTP of the Gateways of TenantGateways
    #[garde(range(min = 1))]
    pub http_port: u16,
    /// Port of TLS of the Gateways of TenantGateways
    #[garde(range(min = 1))]
    pub https_port: u16,
    /// Source of the certificates of TenantGateways without the annotation gatewright.io/issuer, in
    /// a cluster
    pub certificates: CertificateSource,
    /// Namespace of cert-manager, whose HTTPRoutes for challenges may attach to port 80 of
    /// TenantGateways
    pub cert_manager_namespace: String,
    /// Order of precedence between the claimants of a hostname of TenantGateways. Without it:
    /// FirstCome at Gateways of our classes, Smallest beside another data plane
    pub hostname_claims: Option<HostnameClaims>,
    /// Duration, in hours, for which a released hostname stays reserved for its previous namespace,
    /// where the record of ownership decides; 0 frees it at once
    pub hostname_hold_hours: u16,
    /// Treatment of namespaces without the label namespace.cozystack.io/host under a TenantGateway
    /// of another namespace that does not list them in attachedNamespaces
    pub unlabelled_namespaces: Unlabelled,
    /// Hostnames that are reserved under TenantGateways
    pub reserved_hostnames: Vec<ReservedHostname>,
    /// ACME directories that TenantGateways may name in the annotation gatewright.io/acme-directory
    pub acme_directories: TenantDirectories,
    /// Networks to which a controller does not connect on a tenant's request: ACME directories
    /// (acmeDirectories Any), name servers of rfc2136, authoritative servers of tenants' zones. A
    /// given list replaces the default. Add the networks of pods and Services if they are public
    /// addresses
    pub denied_networks: Vec<Network>,
    /// Exceptions from deniedNetworks, for example the network of your own CA or name servers
    pub allowed_networks: Vec<Network>,
}

/// A hostname that is reserved under TenantGateways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReservedHostname {
    /// The hostname, or a wildcard, which is reserved with all names below it
    pub hostname: Hostname,
    /// The namespace that may have it. Without it: nobody
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The order of precedence between the claimants of a hostname.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HostnameClaims {
    /// At all Gateways: first namespaces cozy-*, then the smallest namespace/name
    Smallest,
    /// At all Gateways: the first claimant, as recorded in the private directory or in ConfigMaps
    /// of the controller
    FirstCome,
}

/// The source of the certificates of TenantGateways that name no issuer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CertificateSource {
    /// cert-manager, through its Issuers and Certificates
    #[default]
    CertManager,
    /// This program, by ACME; it writes the same Secrets
    Own,
    /// This program, by its internal CA, without any external CA
    InternalCa,
}

/// The ACME directories that TenantGateways may name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TenantDirectories {
    /// Those of Let's Encrypt, and of the issuers of this document
    #[default]
    Known,
    /// Any: the controller connects to the directory that a tenant names, unless deniedNetworks
    /// contains its address
    Any,
}

/// The treatment of namespaces without the label of their hostnames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Unlabelled {
    /// They publish no hostnames
    #[default]
    Deny,
    /// They publish hostnames at and below the apex of the TenantGateway
    Allow,
}

impl Default for Tenancy {
    fn default() -> Self {
        Self {
            enabled: true,
            gateway_class: "cilium".to_owned(),
            http_port: 80,
            https_port: 443,
            certificates: CertificateSource::default(),
            cert_manager_namespace: "cozy-cert-manager".to_owned(),
            hostname_claims: None,
            hostname_hold_hours: 24,
            unlabelled_namespaces: Unlabelled::default(),
            reserved_hostnames: Vec::new(),
            acme_directories: TenantDirectories::default(),
            denied_networks: DeniedNetworks::private_networks().map(Network).collect(),
            allowed_networks: Vec::new(),
        }
    }
}

impl CertificateSource {
    /// The source as tenancy names it.
    pub fn source(self) -> tenancy::Source {
        match self {
            Self::CertManager => tenancy::Source::CertManager,
            Self::Own => tenancy::Source::Acme,
            Self::InternalCa => tenancy::Source::InternalCa,
        }
    }
}

impl Tenancy {
    /// The settings that hold everywhere. `recording` is the writer of the record, where first
    /// claims count.
    pub fn settings(&self, recording: Recording) -> tenancy::Settings {
        let is_smallest = self.hostname_claims == Some(HostnameClaims::Smallest);
        tenancy::Settings {
            recording: (!is_smallest).then_some(recording),
            recorded_elsewhere: self.hostname_claims == Some(HostnameClaims::FirstCome),
            hold: self.hold(),
            unlabelled: self.unlabelled_namespaces == Unlabelled::Allow,
            reserved: self.reserved(),
            class: self.gateway_class.clone(),
            cert_manager_namespace: self.cert_manager_namespace.clone(),
            ..tenancy::Settings::default()
        }
    }

    /// The ports of the Gateways of TenantGateways.
    pub fn ports(&self) -> tenancy::Ports {
        tenancy::Ports {
            http: self.http_port,
            https: self.https_port,
        }
    }

    /// The duration for which a released hostname stays reserved, in seconds.
    pub fn hold(&self) -> u64 {
        u64::from(self.hostname_hold_hours) * 3600
    }

    /// The networks to which nothing connects on a tenant's request.
    pub fn denied(&self) -> DeniedNetworks {
        DeniedNetworks::new(self.denied_networks.iter().map(|network| network.0))
            .allowing(self.allowed_networks.iter().map(|network| network.0))
    }

    fn reserved(&self) -> BTreeMap<Hostname, Option<Arc<str>>> {
        self.reserved_hostnames
            .iter()
            .map(|one| {
                let namespace = one.namespace.as_deref().map(Arc::from);
                (one.hostname.clone(), namespace)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_hostnames_are_read() {
        for wrong in ["", "A.org", "192.0.2.1", "*"] {
            let written = serde_json::json!({ "hostname": wrong });
            assert!(
                serde_json::from_value::<ReservedHostname>(written).is_err(),
                "{wrong}"
            );
        }
        let written = serde_json::json!({"reservedHostnames": [
            {"hostname": "a.org"}, {"hostname": "*.a.org", "namespace": "cozy-a"}]});
        let tenancy: Tenancy = serde_json::from_value(written).expect("it is fine");
        let reserved = tenancy.settings(Recording::OtherProcess).reserved;
        let of = |name: &str| reserved[&Hostname::parse(name).expect("a name")].clone();
        assert_eq!(of("a.org"), None);
        assert_eq!(of("*.a.org").as_deref(), Some("cozy-a"));
    }
}
