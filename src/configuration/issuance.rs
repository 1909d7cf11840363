//! Which namespaces may use the issuers of the installation.

use gatewright_core::translate::{IssuerPolicy, Unlisted};
use gatewright_core::wanted::INTERNAL_CA;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Configuration;

/// The namespaces whose listeners may use an issuer without rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IssuersFor {
    /// All namespaces, for every hostname that they have
    Everybody,
    /// No namespace
    Nobody,
}

impl Configuration {
    /// The policy from the rules of all issuers. `usual` holds for issuers without rules where the
    /// document says nothing.
    pub fn issuer_policy(&self, usual: Unlisted) -> IssuerPolicy {
        let rules = || {
            let of_issuers = self
                .issuers
                .iter()
                .map(|(name, settings)| (name.as_str(), &settings.allow));
            of_issuers.chain([(INTERNAL_CA, &self.internal_ca.allow)])
        };
        let mut policy = IssuerPolicy::new(match self.issuers_for {
            Some(IssuersFor::Everybody) => Unlisted::Everybody,
            Some(IssuersFor::Nobody) => Unlisted::Nobody,
            // The first rule of any issuer restricts all of them.
            None if rules().any(|(_, rules)| !rules.is_empty()) => Unlisted::Nobody,
            None => usual,
        });
        for (issuer, rules) in rules() {
            for rule in rules {
                policy.allow(issuer, rule.clone());
            }
        }
        policy
    }
}
