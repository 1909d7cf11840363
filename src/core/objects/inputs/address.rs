//! The addresses that a Gateway asks for.

use std::net::IpAddr;

use crate::gateway_api::gateways as gw;
use crate::model::Routability;

/// An address that a Gateway asks for, with where it is to be reachable from (GEP-5093).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRequest {
    /// The address.
    pub address: Address,
    /// From where it is to be reachable.
    pub routability: Routability,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// One to bind.
    Ip(IpAddr),
    /// `IPAddress` without a value: whatever the class gives.
    Any,
    /// A type or value we cannot use, as text.
    Unsupported(String),
    /// An `IPAddress` whose value is no IP address, as text.
    Malformed(String),
}

impl Address {
    /// The one to bind, where it names one.
    pub fn ip(&self) -> Option<&IpAddr> {
        match self {
            Address::Ip(ip) => Some(ip),
            Address::Any | Address::Unsupported(_) | Address::Malformed(_) => None,
        }
    }
}

impl AddressRequest {
    /// A request for an address, wherever it is reachable from.
    pub fn anywhere(address: Address) -> Self {
        Self {
            address,
            routability: Routability::Default,
        }
    }

    pub(super) fn read(address: gw::GatewayAddresses) -> Self {
        let value = address.value.unwrap_or_default();
        let routability = Routability::parse(address.routability.as_deref().unwrap_or_default());
        let address = match address.r#type.as_deref().unwrap_or("IPAddress") {
            "IPAddress" if value.is_empty() => Address::Any,
            "IPAddress" => value.parse().map_or(Address::Malformed(value), Address::Ip),
            other => Address::Unsupported(format!("{other} {value:?}")),
        };
        Self {
            address,
            routability,
        }
    }

    /// True if any address would do, wherever it is reachable from.
    pub fn is_unscoped(&self) -> bool {
        matches!(
            self.routability,
            Routability::Default | Routability::Sentinel
        )
    }
}
