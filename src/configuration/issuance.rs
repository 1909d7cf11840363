//! Which namespaces may use the issuers of the installation.

use gatewright_core::translate::{IssuerPolicy, Unlisted};
use gatewright_core::wanted::INTERNAL_CA;

use super::Configuration;

impl Configuration {
    /// The policy from the rules of all issuers. `usual` holds for issuers without rules where the
    /// document says nothing.
    pub fn issuer_policy(&self, usual: Unlisted) -> IssuerPolicy {
        let of_issuers = self
            .issuers
            .iter()
            .map(|(name, settings)| (name.as_str(), &settings.allow));
        let rules: Vec<_> = of_issuers
            .chain([(INTERNAL_CA, &self.internal_ca.allow)])
            .flat_map(|(issuer, rules)| rules.iter().map(move |rule| (issuer, rule)))
            .collect();
        // The first rule of any issuer restricts all of them.
        let unlisted = if rules.is_empty() {
            usual
        } else {
            Unlisted::Nobody
        };
        let mut policy = IssuerPolicy::new(self.issuers_for.unwrap_or(unlisted));
        for (issuer, rule) in rules {
            policy.allow(issuer, rule.clone());
        }
        policy
    }
}
