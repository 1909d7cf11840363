//! Where clients reach a Gateway.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// An address of a Gateway, as its status says it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GatewayAddress {
    /// By its number.
    Ip(IpAddr),
    /// By a name that somebody else resolves, as some load balancers have it.
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
