//! The directory of a CA (RFC 8555, 7.1.1).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::resource::{DIRECTORY, Unreadable};

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
    /// Reads the directory at `url`. Each resource has a URL: `instant-acme` builds its request for
    /// a nonce of whatever stands there, and panics where that is none.
    pub(super) fn read(body: &[u8], url: &str) -> Result<Self, Unreadable> {
        let read = DIRECTORY.read(body, url)?;
        Ok(serde_json::from_value(read).expect("each member has the type of its field"))
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
    use serde_json::{Value, json};

    use super::*;

    fn read(member: &str, value: Value) -> Result<Directory, String> {
        let mut found = json!({
            "newNonce": "https://ca.example/nonce", "newAccount": "/account", "newOrder": "https://ca.example/order",
            "renewalInfo": "https://ca.example/info", "meta": { "profiles": { "classic": "long" } },
        });
        found[member] = value;
        Directory::read(found.to_string().as_bytes(), "https://ca.example/dir")
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_directory_without_a_needed_url_is_refused_by_its_name() {
        for bad in [
            json!(null),
            json!(""),
            json!(" "),
            json!("https://"),
            json!("a\0b"),
            json!("mailto:a"),
            json!(7),
        ] {
            for member in ["newNonce", "newAccount", "newOrder"] {
                let told = read(member, bad.clone()).expect_err("it is needed");
                assert!(
                    told.starts_with(&format!(
                        "the directory has no usable {member}: expected a URL, found "
                    )),
                    "{told}"
                );
            }
        }
        assert_eq!(
            read("x", json!(1)).map(|read| read.new_account),
            Ok("https://ca.example/account".to_owned())
        );
    }

    #[test]
    fn odd_optional_members_of_a_directory_count_as_absent() {
        for odd in [
            json!(null),
            json!(""),
            json!([]),
            json!({}),
            json!(true),
            json!([null]),
            json!({ "profiles": 1 }),
        ] {
            for member in ["meta", "renewalInfo", "keyChange", "revokeCert"] {
                let read = read(member, odd.clone()).expect("it is optional");
                assert!(read.key_change.is_none(), "{member} {odd}");
                assert_eq!(
                    read.renewal_info.is_none(),
                    member == "renewalInfo",
                    "{member} {odd}"
                );
                assert_eq!(
                    read.meta == Meta::default(),
                    member == "meta",
                    "{member} {odd}"
                );
            }
            for member in [
                "termsOfService",
                "website",
                "caaIdentities",
                "externalAccountRequired",
            ] {
                let read = read(
                    "meta",
                    json!({ member: odd.clone(), "profiles": { "tiny": odd } }),
                )
                .expect("it is optional");
                assert!(read.meta.profiles.contains_key("tiny"), "{member} {odd}");
                assert!(
                    read.meta.caa_identities.is_empty() && read.meta.website.is_none(),
                    "{member} {odd}"
                );
            }
        }
    }
}
