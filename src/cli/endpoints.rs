//! Which endpoints are used.

use std::sync::Arc;

use clap::Args;
use gatewright_core::translate::SYSTEM_ROOTS;
use ipnet::IpNet;

/// Which endpoints are used.
#[derive(Clone, Debug, Default, Args)]
pub struct Endpoints {
    /// Networks in which no endpoint of a Service is used, besides link-local and multicast addresses, metadata services of
    /// clouds and Envoy's own listeners: those of nodes, for example (docs/security.md)
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub denied_endpoint_networks: Vec<IpNet>,
    /// The file beside each Envoy with the root certificates that its system trusts, for BackendTLSPolicies that ask for
    /// those; `none` where there is none
    #[arg(long, value_name = "FILE", default_value = SYSTEM_ROOTS)]
    pub system_roots: String,
}

impl Endpoints {
    /// Where the roots are that the system of an Envoy trusts; `None` where it has none.
    pub fn system_roots(&self) -> Option<Arc<str>> {
        Some(self.system_roots.as_str()).filter(|file| !file.is_empty() && *file != "none").map(Arc::from)
    }
}
