//! The internal CA.

use acme::DnsName;
use garde::Validate;
use gatewright_control::certificates::AuthorityLimits;
use gatewright_core::translate::IssuerAllow;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The internal CA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct InternalCa {
    /// Domains for which it issues certificates, with all names below them. Empty: any domain that
    /// its users are allowed
    #[serde(deserialize_with = "domains")]
    #[schemars(with = "Vec<String>")]
    pub domains: Vec<DnsName>,
    /// Maximum number of registered domains with an internal CA; each has its own keys, and a root
    /// that clients have to trust
    #[garde(range(min = 1, max = 512))]
    pub max_domains: u16,
    /// Maximum number of registered domains for which one namespace may be the first to ask
    #[garde(range(min = 1, max = 512))]
    pub max_domains_per_namespace: u16,
    /// The namespaces whose listeners may use it, and for which hostnames; without a rule,
    /// issuersFor decides
    pub allow: Vec<IssuerAllow>,
}

impl Default for InternalCa {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
            max_domains: 256,
            max_domains_per_namespace: 32,
            allow: Vec::new(),
        }
    }
}

impl InternalCa {
    /// Its limits as the CA has them.
    pub fn limits(&self) -> AuthorityLimits {
        AuthorityLimits {
            domains: self.domains.clone(),
            most: usize::from(self.max_domains),
            most_of_one: usize::from(self.max_domains_per_namespace),
        }
    }
}

fn domains<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<DnsName>, D::Error> {
    let names = Vec::<DnsName>::deserialize(from)?;
    if names.iter().any(DnsName::is_wildcard) {
        let text = "expected a domain, without *: names below are meant as well";
        return Err(serde::de::Error::custom(text));
    }
    Ok(names)
}
