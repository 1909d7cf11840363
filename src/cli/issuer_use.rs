//! The rules of the command line for the use of the installation's issuers.

use std::collections::BTreeMap;

use acme::DnsName;
use clap::{Args, ValueEnum};

use gatewright_control::certificates::{AuthorityLimits, IssuerSettings, SettingsError};
use gatewright_core::translate::{IssuerPolicy, IssuerRule, Unlisted};
use gatewright_core::wanted::INTERNAL_CA;

/// The rules for the use of the installation's issuers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Rules for issuers")]
pub struct IssuerUse {
    /// Rule that allows listeners of some namespaces to have certificates of an issuer, internal-ca
    /// included, for some hostnames; may be repeated. A namespace may end in *, which matches every
    /// namespace with that prefix; *.example.org matches all names below example.org. Wildcard
    /// certificates need :wildcards. An issuer with rules issues nothing else
    #[arg(
        long = "issuer-allow",
        id = "issuer_allow",
        value_name = "ISSUER=NAMESPACE[,NAMESPACE]:HOSTNAME[,HOSTNAME][:wildcards]"
    )]
    pub rules: Vec<IssuerRule>,
    /// Namespaces whose listeners may use an issuer without rules. TenantGateways always may, for
    /// their granted hostnames [default: nobody; everybody if manifests of a directory are read and
    /// no issuer has a rule]
    #[arg(
        long = "issuers-for",
        id = "issuers_for",
        value_name = "WHO",
        value_enum
    )]
    pub unlisted: Option<IssuersFor>,
}

/// The limits of the internal CA.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Internal CA")]
pub struct InternalCa {
    /// Domain for which the internal CA issues certificates, with all names below it; may be
    /// repeated [default: any domain that its users are allowed]
    #[arg(long = "internal-ca-domain", id = "internal_ca_domain", value_name = "DOMAIN", value_parser = domain)]
    pub domains: Vec<DnsName>,
    /// Maximum number of registered domains with an internal CA; each has its own keys, and a root
    /// that clients have to trust
    #[arg(
        long = "internal-ca-limit", id = "internal_ca_limit", value_name = "NUMBER", default_value_t = 256,
        value_parser = clap::value_parser!(u16).range(1..=512)
    )]
    pub most: u16,
    /// Maximum number of registered domains of the internal CA for which one namespace may be the
    /// first to ask
    #[arg(
        long = "internal-ca-limit-per-namespace", id = "internal_ca_limit_per_namespace", value_name = "NUMBER",
        default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=512)
    )]
    pub most_of_one: u16,
}

impl InternalCa {
    /// The limits of the internal CA as its settings.
    pub fn limits(&self) -> AuthorityLimits {
        AuthorityLimits {
            domains: self.domains.clone(),
            most: usize::from(self.most),
            most_of_one: usize::from(self.most_of_one),
        }
    }
}

fn domain(text: &str) -> Result<DnsName, String> {
    let name = DnsName::parse(text).map_err(|error| error.to_string())?;
    if name.is_wildcard() {
        return Err("expected a domain, without *: names below are meant as well".to_owned());
    }
    Ok(name)
}

/// The namespaces whose listeners may use an issuer without rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IssuersFor {
    /// All namespaces, for every hostname that they have
    Everybody,
    /// No namespace
    Nobody,
}

impl IssuerUse {
    /// The policy from the rules of these issuers and of the command line.
    ///
    /// # Errors
    /// When a rule names an unknown issuer.
    pub fn policy(
        &self,
        issuers: &BTreeMap<String, IssuerSettings>,
        unlisted: Unlisted,
    ) -> Result<IssuerPolicy, SettingsError> {
        for rule in &self.rules {
            if rule.issuer != INTERNAL_CA && !issuers.contains_key(&rule.issuer) {
                let known: Vec<&str> = std::iter::once(INTERNAL_CA)
                    .chain(issuers.keys().map(String::as_str))
                    .collect();
                let problem = format!(
                    "no issuer is called {:?}: there are {}",
                    rule.issuer,
                    known.join(", ")
                );
                return Err(SettingsError::Value {
                    field: "--issuer-allow".to_owned(),
                    problem,
                });
            }
        }
        let has_rules = issuers.values().any(|settings| !settings.allow.is_empty());
        let mut policy = self.rules_alone(if has_rules {
            Unlisted::Nobody
        } else {
            unlisted
        });
        for (name, settings) in issuers {
            settings
                .allow
                .iter()
                .for_each(|rule| policy.allow(name, rule.clone()));
        }
        Ok(policy)
    }

    /// The policy from the rules of the command line only, where the issuers are unknown.
    pub fn rules_alone(&self, unlisted: Unlisted) -> IssuerPolicy {
        let mut policy = IssuerPolicy::new(match self.unlisted {
            Some(IssuersFor::Everybody) => Unlisted::Everybody,
            Some(IssuersFor::Nobody) => Unlisted::Nobody,
            // The first rule of any issuer restricts all of them.
            None if !self.rules.is_empty() => Unlisted::Nobody,
            None => unlisted,
        });
        self.rules
            .iter()
            .for_each(|rule| policy.allow(&rule.issuer, rule.allow.clone()));
        policy
    }
}
