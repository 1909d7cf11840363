//! The directory of a CA (RFC 8555, 7.1.1).

use std::collections::BTreeMap;

use hyper::Uri;
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

impl Directory {
    /// Whether every resource has a URL. `instant-acme` builds its request for a nonce of whatever stands there, and panics where
    /// that is none.
    pub(super) fn has_urls(&self) -> bool {
        let Self { new_nonce, new_account, new_order, revoke_cert, key_change, renewal_info, meta: _ } = self;
        let all = [Some(new_nonce), Some(new_account), Some(new_order)];
        let others = [revoke_cert.as_ref(), key_change.as_ref(), renewal_info.as_ref()];
        let is_url =
            |text: &String| text.parse::<Uri>().is_ok_and(|url| url.scheme().is_some() && url.host().is_some());
        all.into_iter().chain(others).flatten().all(is_url)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_url_is_no_directory() {
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
