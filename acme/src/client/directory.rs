//! The directory of a CA (RFC 8555, 7.1.1).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where the CA's resources are, and what it says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Directory {
    /// Nonces.
    pub new_nonce: String,
    /// Accounts.
    pub new_account: String,
    /// Orders.
    pub new_order: String,
    /// Revocation.
    #[serde(default)]
    pub revoke_cert: Option<String>,
    /// Key rollover.
    #[serde(default)]
    pub key_change: Option<String>,
    /// ARI (RFC 9773, 3).
    #[serde(default)]
    pub renewal_info: Option<String>,
    /// About the CA.
    #[serde(default)]
    pub meta: Meta,
}

/// What a CA says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Terms of service.
    #[serde(default)]
    pub terms_of_service: Option<String>,
    /// Its website.
    #[serde(default)]
    pub website: Option<String>,
    /// Its names in CAA records (RFC 8659).
    #[serde(default)]
    pub caa_identities: Vec<String>,
    /// Does it take accounts with an external binding only?
    #[serde(default)]
    pub external_account_required: bool,
    /// Certificate profiles and what they are.
    #[serde(default)]
    pub profiles: BTreeMap<String, String>,
}
