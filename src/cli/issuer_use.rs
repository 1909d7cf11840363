//! Who may ask the issuers of the installation, as the command line says it.

use std::collections::BTreeMap;

use acme::DnsName;
use clap::{Args, ValueEnum};

use gatewright_control::certificates::{AuthorityLimits, IssuerSettings, SettingsError};
use gatewright_core::translate::{IssuerPolicy, IssuerRule, Unlisted};
use gatewright_core::wanted::INTERNAL_CA;

/// Who may ask the issuers of the installation.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Who may ask issuers")]
pub struct IssuerUse {
    /// Let listeners of some namespaces have certificates from an issuer, internal-ca included, for some hostnames; may be
    /// repeated. Names end in * for all that begin so; *.example.org are all names below. An issuer with rules works for
    /// nothing else. Certificates for wildcards only with :wildcards
    #[arg(
        long = "issuer-allow",
        id = "issuer_allow",
        value_name = "ISSUER=NAMESPACE[,NAMESPACE]:HOSTNAME[,HOSTNAME][:wildcards]"
    )]
    pub rules: Vec<IssuerRule>,
    /// Whose listeners may ask an issuer without rules; TenantGateways may, for what they were granted
    /// [default: nobody's, but everybody's with a directory, which one person writes, while there is no rule at all]
    #[arg(long = "issuers-for", id = "issuers_for", value_name = "WHO", value_enum)]
    pub unlisted: Option<IssuersFor>,
}

/// What the internal CA is for.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Internal CA")]
pub struct InternalCa {
    /// Domain that the internal CA issues for, with all names below; may be repeated [default: any that its users may ask for]
    #[arg(long = "internal-ca-domain", id = "internal_ca_domain", value_name = "DOMAIN", value_parser = domain)]
    pub domains: Vec<DnsName>,
    /// For how many registered domains there is an internal CA: each has keys of its own, and a root that clients trust
    #[arg(
        long = "internal-ca-limit", id = "internal_ca_limit", value_name = "NUMBER", default_value_t = 256,
        value_parser = clap::value_parser!(u16).range(1..=512)
    )]
    pub most: u16,
    /// For how many of them one namespace may be the first that asks
    #[arg(
        long = "internal-ca-limit-per-namespace", id = "internal_ca_limit_per_namespace", value_name = "NUMBER",
        default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=512)
    )]
    pub most_of_one: u16,
}

impl InternalCa {
    /// For which domains there are internal CAs.
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

/// Whose listeners may ask an issuer without rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IssuersFor {
    /// Those of every namespace, for every hostname they have
    Everybody,
    /// None
    Nobody,
}

impl IssuerUse {
    /// Who may ask, by the rules of these issuers and of the command line.
    ///
    /// # Errors
    /// When a rule is about an issuer that is not there.
    pub fn policy(
        &self,
        issuers: &BTreeMap<String, IssuerSettings>,
        unlisted: Unlisted,
    ) -> Result<IssuerPolicy, SettingsError> {
        for rule in &self.rules {
            if rule.issuer != INTERNAL_CA && !issuers.contains_key(&rule.issuer) {
                let known: Vec<&str> = std::iter::once(INTERNAL_CA).chain(issuers.keys().map(String::as_str)).collect();
                let problem = format!("no issuer is called {:?}: there are {}", rule.issuer, known.join(", "));
                return Err(SettingsError::Value { field: "--issuer-allow".to_owned(), problem });
            }
        }
        let has_rules = issuers.values().any(|settings| !settings.allow.is_empty());
        let mut policy = self.rules_alone(if has_rules { Unlisted::Nobody } else { unlisted });
        for (name, settings) in issuers {
            settings.allow.iter().for_each(|rule| policy.allow(name, rule.clone()));
        }
        Ok(policy)
    }

    /// Who may ask, by the rules of the command line, where nobody knows which issuers there are.
    pub fn rules_alone(&self, unlisted: Unlisted) -> IssuerPolicy {
        let mut policy = IssuerPolicy::new(match self.unlisted {
            Some(IssuersFor::Everybody) => Unlisted::Everybody,
            Some(IssuersFor::Nobody) => Unlisted::Nobody,
            // Whoever begins to say who may ask means all issuers.
            None if !self.rules.is_empty() => Unlisted::Nobody,
            None => unlisted,
        });
        self.rules.iter().for_each(|rule| policy.allow(&rule.issuer, rule.allow.clone()));
        policy
    }
}
