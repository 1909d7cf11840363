//! AccessPolicy (`gatewright.io/v1alpha1`): who may send requests to hosts.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use ipnet::IpNet;
use serde::Deserialize;

use super::client_addresses::network;
use super::{AttachedPolicy, AttachedRules, Meta, ParseError};
use crate::gateway_api::backendtlspolicies::BackendTlsPolicyTargetRefs;
use crate::model::AddressList;

/// The custom resource definition.
pub const ACCESS_POLICY_CRD: &str =
    include_str!("../../../deploy/crds/gatewright.io_accesspolicies.yaml");

/// The most networks of a list.
const NETWORKS: usize = 64;

/// The rules of an AccessPolicy.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessRules {
    /// The clients by address.
    pub addresses: Option<AddressList>,
}

/// `spec` of an AccessPolicy.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AccessPolicySpec {
    target_refs: Vec<BackendTlsPolicyTargetRefs>,
    client_address: Option<WrittenAddresses>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAddresses {
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
}

impl AccessPolicySpec {
    /// The policy. A value that cannot be carried out is kept with its reason.
    pub(super) fn policy(self, meta: Meta) -> Result<AttachedPolicy, ParseError> {
        let Self {
            target_refs,
            client_address,
        } = self;
        let rules = rules(client_address);
        AttachedPolicy::new(meta, target_refs, AttachedRules::Access(rules))
    }
}

fn rules(client_address: Option<WrittenAddresses>) -> Result<AccessRules, String> {
    let addresses = client_address.map(addresses).transpose()?;
    if addresses.is_none() {
        return Err("spec: clientAddress is needed".to_owned());
    }
    Ok(AccessRules { addresses })
}

fn addresses(written: WrittenAddresses) -> Result<AddressList, String> {
    let WrittenAddresses { allow, deny } = written;
    if allow.is_empty() && deny.is_empty() {
        return Err("clientAddress: allow or deny is needed".to_owned());
    }
    Ok(AddressList {
        allow: networks("clientAddress.allow", &allow)?.into(),
        deny: networks("clientAddress.deny", &deny)?.into(),
    })
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

#[cfg(test)]
mod tests;
