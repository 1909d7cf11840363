//! The address of a Gateway for clients.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// An address of a Gateway in its status.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GatewayAddress {
    /// An IP address.
    Ip(IpAddr),
    /// A DNS name, which some load balancers have instead of an address.
    Hostname(Arc<str>),
}

impl GatewayAddress {
    /// The type of a `GatewayStatusAddress`.
    pub fn kind(&self) -> &'static str {
        match self {
            GatewayAddress::Ip(_) => "IPAddress",
            GatewayAddress::Hostname(_) => "Hostname",
        }
    }
}

impl fmt::Display for GatewayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GatewayAddress::Ip(ip) => write!(f, "{ip}"),
            GatewayAddress::Hostname(name) => f.write_str(name),
        }
    }
}
