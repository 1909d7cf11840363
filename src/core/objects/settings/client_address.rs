//! `clientAddress` of an AccessPolicy: clients by their addresses.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Deserialize;

use super::{Amount, Setting};
use crate::address_forms::mapped_within;
use crate::cost::{Bytes, RuleSize};
use crate::inputs::ClassPolicyLimits;
use crate::inputs::client_addresses::network;

/// The most networks of a list.
const NETWORKS: usize = 64;
/// A network.
const NETWORK: Bytes = Bytes::of(500, 100);

/// Clients by their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressList {
    /// The networks of clients that may send requests; empty for all.
    pub allow: Arc<[IpNet]>,
    /// The networks of clients that may not, although they are allowed.
    pub deny: Arc<[IpNet]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenAddresses {
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
}

impl Setting for AddressList {
    type Written = WrittenAddresses;
    type Rules = Self;

    fn read(written: WrittenAddresses, _: &Arc<str>) -> Result<Self, String> {
        let WrittenAddresses { allow, deny } = written;
        if allow.is_empty() && deny.is_empty() {
            return Err("clientAddress: allow or deny is needed".to_owned());
        }
        Ok(Self {
            allow: networks("clientAddress.allow", &allow)?.into(),
            deny: networks("clientAddress.deny", &deny)?.into(),
        })
    }

    fn amounts(&self, limits: &ClassPolicyLimits) -> Vec<Amount> {
        vec![Amount {
            asked: ("clientAddress", self.len()),
            limit: ("networks", limits.networks),
        }]
    }

    fn cost(&self, _: RuleSize) -> Bytes {
        NETWORK * self.ranges() as u64
    }
}

impl AddressList {
    /// The number of networks.
    pub fn len(&self) -> usize {
        self.allow.len() + self.deny.len()
    }

    /// True if it lists no network.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of ranges by which Envoy finds clients: a network of IPv4 in both forms, one of
    /// IPv6 without the IPv4-mapped addresses in it.
    fn ranges(&self) -> usize {
        let networks = self.allow.iter().chain(&*self.deny);
        networks
            .map(|network| match network {
                IpNet::V4(_) => 2,
                IpNet::V6(v6) => 1 + usize::from(mapped_within(*v6).is_some()),
            })
            .sum()
    }

    /// True if a client may send requests. One at an IPv4-mapped address is a client of IPv4.
    pub fn admits(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        (self.allow.is_empty() || is_in(&self.allow, client)) && !is_in(&self.deny, client)
    }
}

fn is_in(networks: &[IpNet], client: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&client))
}

/// The networks of a list, sorted: their order has no meaning.
fn networks(field: &str, written: &[String]) -> Result<Vec<IpNet>, String> {
    if written.len() > NETWORKS {
        return Err(format!(
            "{field}: expected at most {NETWORKS} networks, found {}",
            written.len()
        ));
    }
    let read = written.iter().enumerate().map(|(index, text)| {
        network(text, true).map_err(|error| format!("{field}[{index}]: {error}"))
    });
    let mut networks: Vec<IpNet> = read.collect::<Result<_, _>>()?;
    networks.sort();
    networks.dedup();
    Ok(networks)
}
