//! The address of a Gateway for clients.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// An address of a Gateway.
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

/// An address of a Gateway in its status.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatusAddress {
    /// The address.
    pub address: GatewayAddress,
    /// From where it is reachable; `None` where the channel has no word for it.
    pub routability: Option<Routability>,
}

/// From where an address is reachable (GEP-5093).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Routability {
    /// Wherever the class gives it, without any guarantee.
    Default,
    /// Within the cluster: it is an address that the API server gives to Services.
    Cluster,
    /// The word that conformance tests have for one without any guarantee.
    Sentinel,
    /// Another one, which we have not.
    Other(Box<str>),
}

/// Reserved for conformance tests.
const SENTINEL: &str = "testing.x-k8s.io/sentinel";

impl Routability {
    /// As written.
    pub fn parse(text: &str) -> Self {
        match text {
            "" => Routability::Default,
            "Cluster" => Routability::Cluster,
            SENTINEL => Routability::Sentinel,
            other => Routability::Other(other.into()),
        }
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        match self {
            Routability::Default => "",
            Routability::Cluster => "Cluster",
            Routability::Sentinel => SENTINEL,
            Routability::Other(text) => text,
        }
    }
}
