//! The endpoints that are used.

use std::sync::Arc;

use clap::Args;
use gatewright_core::translate::SYSTEM_ROOTS;
use ipnet::IpNet;

/// The endpoints that are used.
#[derive(Clone, Debug, Default, Args)]
pub struct Endpoints {
    /// Networks whose endpoints of Services are not used, for example those of nodes. Link-local
    /// and multicast addresses, metadata services of clouds and Envoy's own listeners are always
    /// denied (docs/endpoints.md)
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub denied_endpoint_networks: Vec<IpNet>,
    /// Path, in the filesystem of each Envoy, of the system's root certificates, for
    /// BackendTLSPolicies with wellKnownCACertificates: System; `none` if Envoys have no such file
    #[arg(long, value_name = "FILE", default_value = SYSTEM_ROOTS)]
    pub system_roots: String,
}

impl Endpoints {
    /// The path of the root certificates of an Envoy's system; `None` if it has none.
    pub fn system_roots(&self) -> Option<Arc<str>> {
        Some(self.system_roots.as_str())
            .filter(|file| !file.is_empty() && *file != "none")
            .map(Arc::from)
    }
}
