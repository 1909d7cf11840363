//! The directory of a CA (RFC 8555, 7.1.1).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The directory: URLs of the CA's resources, and its metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Directory {
    /// newNonce.
    pub new_nonce: String,
    /// newAccount.
    pub new_account: String,
    /// newOrder.
    pub new_order: String,
    /// revokeCert.
    #[serde(default)]
    pub revoke_cert: Option<String>,
    /// keyChange, for key rollover.
    #[serde(default)]
    pub key_change: Option<String>,
    /// ARI (RFC 9773, 3).
    #[serde(default)]
    pub renewal_info: Option<String>,
    /// Metadata of the CA.
    #[serde(default)]
    pub meta: Meta,
}

/// The metadata of a CA.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Terms of service.
    #[serde(default)]
    pub terms_of_service: Option<String>,
    /// The CA's website.
    #[serde(default)]
    pub website: Option<String>,
    /// The CA's names in CAA records (RFC 8659).
    #[serde(default)]
    pub caa_identities: Vec<String>,
    /// True if the CA registers accounts with an external account binding only.
    #[serde(default)]
    pub external_account_required: bool,
    /// Certificate profiles, with their descriptions.
    #[serde(default)]
    pub profiles: BTreeMap<String, String>,
}
