//! Which namespaces may use the issuers of the installation, and which CAs tenants may name.

use std::collections::BTreeSet;

use gatewright_core::ownership::Recording;
use gatewright_core::tenancy;
use gatewright_core::translate::{IssuerPolicy, Unlisted};
use gatewright_core::wanted::INTERNAL_CA;

use super::{Configuration, TenantDirectories};

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

    /// The ACME directories that TenantGateways may name, beside those of Let's Encrypt; `None`
    /// permits any.
    pub fn tenant_directories(&self) -> Option<BTreeSet<String>> {
        match self.tenancy.acme_directories {
            TenantDirectories::Any => None,
            TenantDirectories::Known => {
                let known = self.issuers.values();
                Some(known.map(|known| known.directory.clone()).collect())
            }
        }
    }

    /// The settings of tenancy in a cluster, as far as they show without one: there is no record.
    pub fn tenancy_offline(&self) -> tenancy::Settings {
        tenancy::Settings {
            certificates: self.tenancy.certificates.source(),
            directories: self.tenant_directories(),
            recording: None,
            recorded_elsewhere: false,
            ..self.tenancy.settings(Recording::OtherProcess)
        }
    }
}
