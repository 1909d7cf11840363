//! The issuer policy of the installation: which namespaces may request certificates from which
//! issuers, for which hostnames.
//!
//! An issuer uses resources of the installation: an account at a CA, credentials of a DNS zone, a
//! root that clients trust. So it issues for a listener only if the operator of the installation
//! permits the listener's namespace its hostname. The grants of a TenantGateway are decided by
//! tenancy, not here.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use super::tls_options::SELF_SIGNED;
use crate::model::{Hostname, Reason};

/// The namespaces and hostnames that each issuer issues for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssuerPolicy {
    rules: BTreeMap<String, Vec<IssuerAllow>>,
    unlisted: Unlisted,
}

/// The namespaces that may use an issuer without rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unlisted {
    /// Every namespace, for every hostname of its listeners.
    #[default]
    Everybody,
    /// No listener; TenantGateways alone, for the hostnames that they were granted.
    Nobody,
}

/// A rule: these namespaces may have certificates for these hostnames.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct IssuerAllow {
    namespaces: Vec<NamespacePattern>,
    hostnames: Vec<HostnamePattern>,
    wildcards: bool,
}

/// A rule as written in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    namespaces: Vec<String>,
    hostnames: Vec<String>,
    /// True if wildcard certificates are issued too: one is valid for names that others may own
    /// later.
    #[serde(default)]
    wildcards: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NamespacePattern {
    Any,
    Exact(String),
    Prefix(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostnamePattern {
    Any,
    Exact(Hostname),
    /// Every name that this wildcard covers.
    Below(Hostname),
}

impl IssuerPolicy {
    /// A policy without rules; `unlisted` holds for every issuer.
    pub fn new(unlisted: Unlisted) -> Self {
        Self {
            rules: BTreeMap::new(),
            unlisted,
        }
    }

    /// Adds a rule. An issuer with rules issues for what they permit, and for nothing else.
    pub fn allow(&mut self, issuer: &str, rule: IssuerAllow) {
        self.rules.entry(issuer.to_owned()).or_default().push(rule);
    }

    /// True if a listener of `namespace` may have a certificate for `hostname` from `issuer`.
    pub(super) fn permits(&self, issuer: &str, namespace: &str, hostname: &Hostname) -> bool {
        // It is trusted by no client, and names no host.
        if issuer == SELF_SIGNED {
            return true;
        }
        match self.rules.get(issuer) {
            Some(rules) => rules.iter().any(|rule| rule.permits(namespace, hostname)),
            None => self.unlisted == Unlisted::Everybody,
        }
    }

    /// Like [`Self::permits`]; the error says what to do.
    pub(super) fn check(
        &self,
        issuer: &str,
        namespace: &str,
        hostname: &Hostname,
    ) -> Result<(), (Reason, String)> {
        if self.permits(issuer, namespace, hostname) {
            return Ok(());
        }
        let wildcards = if hostname.is_wildcard() {
            ":wildcards"
        } else {
            ""
        };
        let text = format!(
            "issuer {issuer} does not issue certificates for {hostname} to listeners of namespace {namespace}: refer to a \
             Secret of your own in tls.certificateRefs, or have whoever runs Gatewright allow it with --issuer-allow \
             '{issuer}={namespace}:{hostname}{wildcards}'"
        );
        Err((Reason::HostnameNotAllowed, text))
    }
}

impl IssuerAllow {
    fn permits(&self, namespace: &str, hostname: &Hostname) -> bool {
        (self.wildcards || hostname.is_exact())
            && self
                .namespaces
                .iter()
                .any(|pattern| pattern.matches(namespace))
            && self
                .hostnames
                .iter()
                .any(|pattern| pattern.matches(hostname))
    }
}

impl NamespacePattern {
    fn parse(text: &str) -> Result<Self, String> {
        match text.strip_suffix('*') {
            Some("") => Ok(Self::Any),
            Some(prefix) if label(prefix) => Ok(Self::Prefix(prefix.to_owned())),
            None if label(text) => Ok(Self::Exact(text.to_owned())),
            _ => Err(format!(
                "namespace {text:?}: expected a name, the beginning of names as in team-*, or *"
            )),
        }
    }

    fn matches(&self, namespace: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(name) => name == namespace,
            Self::Prefix(prefix) => namespace.starts_with(prefix.as_str()),
        }
    }
}

fn label(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 63
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

impl HostnamePattern {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let hostname = Hostname::parse(text).map_err(|error| error.to_string())?;
        Ok(if hostname.is_wildcard() {
            Self::Below(hostname)
        } else {
            Self::Exact(hostname)
        })
    }

    fn matches(&self, hostname: &Hostname) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(name) => name == hostname,
            Self::Below(wildcard) => wildcard == hostname || wildcard.covers(hostname),
        }
    }
}

impl TryFrom<Written> for IssuerAllow {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let namespaces: Vec<_> = written
            .namespaces
            .iter()
            .map(|text| NamespacePattern::parse(text))
            .collect::<Result<_, _>>()?;
        let hostnames: Vec<_> = written
            .hostnames
            .iter()
            .map(|text| HostnamePattern::parse(text))
            .collect::<Result<_, _>>()?;
        if namespaces.is_empty() || hostnames.is_empty() {
            return Err(
                "allow: expected at least one of namespaces and one of hostnames".to_owned(),
            );
        }
        Ok(Self {
            namespaces,
            hostnames,
            wildcards: written.wildcards,
        })
    }
}

/// A rule as written on the command line:
/// `ISSUER=NAMESPACE[,NAMESPACE]:HOSTNAME[,HOSTNAME][:wildcards]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerRule {
    /// The issuer.
    pub issuer: String,
    /// The namespaces and hostnames that it issues for.
    pub allow: IssuerAllow,
}

impl FromStr for IssuerRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "expected ISSUER=NAMESPACE[,NAMESPACE]:HOSTNAME[,HOSTNAME][:wildcards]";
        let wrong = || format!("{text:?}: {form}");
        let (issuer, rest) = text
            .split_once('=')
            .filter(|(issuer, _)| !issuer.is_empty())
            .ok_or_else(wrong)?;
        let mut parts = rest.split(':');
        let (Some(namespaces), Some(hostnames)) = (parts.next(), parts.next()) else {
            return Err(wrong());
        };
        let wildcards = match (parts.next(), parts.next()) {
            (None, _) => false,
            (Some("wildcards"), None) => true,
            _ => return Err(wrong()),
        };
        let written = Written {
            namespaces: list(namespaces),
            hostnames: list(hostnames),
            wildcards,
        };
        Ok(Self {
            issuer: issuer.to_owned(),
            allow: written.try_into()?,
        })
    }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

impl fmt::Display for Unlisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Everybody => "everybody",
            Self::Nobody => "nobody",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: &[&str]) -> IssuerPolicy {
        let mut policy = IssuerPolicy::new(Unlisted::Nobody);
        for rule in rules {
            let IssuerRule { issuer, allow } = rule.parse().expect(rule);
            policy.allow(&issuer, allow);
        }
        policy
    }

    #[test]
    fn a_rule_permits_its_namespaces_its_hostnames_and_no_others() {
        let policy = policy(&[
            "acme=alice,team-*:app.example.org,*.alice.example.org",
            "internal-ca=bob:*.corp.example:wildcards",
            "open=*:*",
        ]);
        for (issuer, namespace, hostname, permitted) in [
            ("acme", "alice", "app.example.org", true),
            ("acme", "alice", "www.alice.example.org", true),
            ("acme", "alice", "a.b.alice.example.org", true),
            ("acme", "team-1", "app.example.org", true),
            ("acme", "alice", "alice.example.org", false),
            ("acme", "alice", "other.example.org", false),
            ("acme", "alice", "xalice.example.org", false),
            ("acme", "alice", "*.alice.example.org", false),
            ("acme", "alice2", "app.example.org", false),
            ("acme", "mallory", "app.example.org", false),
            ("acme", "team", "app.example.org", false),
            ("internal-ca", "bob", "*.corp.example", true),
            ("internal-ca", "bob", "*.vault.corp.example", true),
            ("internal-ca", "bob", "vault.corp.example", true),
            ("internal-ca", "bob", "*.example", false),
            ("internal-ca", "alice", "vault.corp.example", false),
            ("open", "mallory", "anything.example", true),
            ("open", "mallory", "*.anything.example", false),
            ("unknown", "alice", "app.example.org", false),
            (SELF_SIGNED, "mallory", "", true),
        ] {
            let hostname = Hostname::parse(hostname).unwrap_or_else(|_| Hostname::any());
            assert_eq!(
                policy.permits(issuer, namespace, &hostname),
                permitted,
                "{issuer} {namespace} {hostname}"
            );
        }
    }

    #[test]
    fn without_rules_the_default_holds() {
        let host = Hostname::parse("a.example.org").expect("a hostname");
        assert!(IssuerPolicy::default().permits("acme", "anybody", &host));
        let refused = IssuerPolicy::new(Unlisted::Nobody)
            .check("acme", "mallory", &host)
            .expect_err("no rule");
        assert_eq!(refused.0, Reason::HostnameNotAllowed);
        for word in [
            "issuer acme",
            "for a.example.org",
            "namespace mallory",
            "'acme=mallory:a.example.org'",
        ] {
            assert!(refused.1.contains(word), "{}", refused.1);
        }
    }

    #[test]
    fn an_invalid_rule_is_named() {
        for (text, word) in [
            ("acme", "expected ISSUER="),
            ("=a:b.example", "expected ISSUER="),
            ("acme=alice", "expected ISSUER="),
            ("acme=alice:a.example:wild", "expected ISSUER="),
            ("acme=alice:a.example:wildcards:x", "expected ISSUER="),
            ("acme=Alice:a.example", "namespace \"Alice\""),
            ("acme=a*b:a.example", "namespace \"a*b\""),
            ("acme=alice:A.example", "upper-case"),
            ("acme=alice:", "hostname \"\""),
            ("acme=:a.example", "namespace \"\""),
        ] {
            let error = text.parse::<IssuerRule>().expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
