//! Services of type ExternalName, and XBackends, as backends.

use std::net::SocketAddr;

use acme::DeniedNetworks;
use garde::Validate;
use gatewright_control::certificates::Network;
use gatewright_core::external_name::{ExternalName, ExternalNames, NamePolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Services of type ExternalName, and XBackends, as backends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct BackendNames {
    /// True lets routes lead to them: this program then looks up names that tenants choose, and
    /// Envoys connect to their addresses
    pub enabled: bool,
    /// Networks in which no name may have addresses, whenever it is looked up. A given list
    /// replaces the default, the networks that are not on the public Internet. Add the networks of
    /// pods, Services and nodes if they are public addresses
    pub denied_networks: Vec<Network>,
    /// Exceptions from deniedNetworks, for example the network of a database outside of the
    /// cluster. They are exceptions for all namespaces
    pub allowed_networks: Vec<Network>,
    /// Domains whose names are not looked up, beside svc, cluster.local and localhost
    #[serde(deserialize_with = "domains")]
    pub denied_domains: Vec<String>,
    /// True if names of a single label are looked up, as those of containers on one machine. In a
    /// cluster they would lead into it
    pub single_labels: bool,
    /// Resolvers that are asked, each as ADDRESS:PORT. Without any: those of the machine, or pod
    /// (/etc/resolv.conf)
    #[garde(length(max = 8))]
    pub resolvers: Vec<SocketAddr>,
}

impl Default for BackendNames {
    fn default() -> Self {
        Self {
            enabled: false,
            denied_networks: DeniedNetworks::private_networks().map(Network).collect(),
            allowed_networks: Vec::new(),
            denied_domains: Vec::new(),
            single_labels: false,
            resolvers: Vec::new(),
        }
    }
}

impl BackendNames {
    /// Which names may be looked up, and which addresses they may have.
    pub fn policy(&self) -> ExternalNames {
        if !self.enabled {
            return ExternalNames::Off;
        }
        let domains = self.denied_domains.iter();
        ExternalNames::On(NamePolicy {
            denied: networks(&self.denied_networks),
            allowed: networks(&self.allowed_networks),
            domains: domains.map(|domain| domain.to_ascii_lowercase()).collect(),
            single_labels: self.single_labels,
        })
    }
}

fn networks(all: &[Network]) -> Vec<ipnet::IpNet> {
    all.iter().map(|network| network.0).collect()
}

fn domains<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let domains = Vec::<String>::deserialize(from)?;
    for domain in &domains {
        // A domain may have a single label.
        ExternalName::parse(&format!("name.{domain}"))
            .map_err(|why| serde::de::Error::custom(format!("{domain:?}: {why}")))?;
    }
    Ok(domains)
}
