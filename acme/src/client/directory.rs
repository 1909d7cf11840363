//! The directory of a CA (RFC 8555, 7.1.1).

use std::collections::BTreeMap;

use hyper::Uri;
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

impl Directory {
    /// Returns true if every resource has a URL. `instant-acme` builds its request for a nonce of whatever stands
    /// there, and panics where that is none.
    pub(super) fn has_urls(&self) -> bool {
        let Self { new_nonce, new_account, new_order, revoke_cert, key_change, renewal_info, meta: _ } = self;
        let all = [Some(new_nonce), Some(new_account), Some(new_order)];
        let others = [revoke_cert.as_ref(), key_change.as_ref(), renewal_info.as_ref()];
        let is_url =
            |text: &String| text.parse::<Uri>().is_ok_and(|url| url.scheme().is_some() && url.host().is_some());
        all.into_iter().chain(others).flatten().all(is_url)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_an_invalid_url_is_refused() {
        let directory = |nonce: &str, info: Option<&str>| Directory {
            new_nonce: nonce.to_owned(),
            new_account: "https://ca.example/account".to_owned(),
            new_order: "https://ca.example/order".to_owned(),
            revoke_cert: None,
            key_change: None,
            renewal_info: info.map(str::to_owned),
            meta: Meta::default(),
        };
        let good = "https://ca.example/nonce";
        assert!(directory(good, None).has_urls() && directory(good, Some("http://[::1]:80/info")).has_urls());
        for bad in ["", " ", "/nonce", "https://", "https://ca.example/a b", "a\0b", "mailto:a"] {
            assert!(!directory(bad, None).has_urls(), "{bad:?}");
            assert!(!directory(good, Some(bad)).has_urls(), "{bad:?}");
        }
    }
}
