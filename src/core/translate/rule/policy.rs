//! The issuer policy of the installation: which namespaces may request certificates from which
//! issuers, for which hostnames.
//!
//! An issuer uses resources of the installation: an account at a CA, credentials of a DNS zone, a
//! root that clients trust. So it issues for a listener only if the operator of the installation
//! permits the listener's namespace its hostname. The grants of a TenantGateway are decided by
//! tenancy, not here.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tls_options::SELF_SIGNED;
use gatewright_objects::model::{Hostname, Reason};
use gatewright_objects::wanted::INTERNAL_CA;

/// The namespaces and hostnames that each issuer issues for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssuerPolicy {
    rules: BTreeMap<String, Vec<IssuerAllow>>,
    unlisted: Unlisted,
}

/// The namespaces whose listeners may use an issuer without rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Unlisted {
    /// All namespaces, for every hostname that they have
    #[default]
    Everybody,
    /// No namespace
    Nobody,
}

/// A rule: these namespaces may have certificates for these hostnames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Written", into = "Written")]
#[schemars(with = "Written")]
pub struct IssuerAllow {
    namespaces: Vec<NamespacePattern>,
    hostnames: Vec<HostnamePattern>,
    wildcards: bool,
}

/// Namespaces that may have certificates for hostnames.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Names of namespaces; one that ends in * is every namespace with that prefix
    namespaces: Vec<String>,
    /// Hostnames; *.example.org is all names below example.org, * is every name
    hostnames: Vec<String>,
    /// Whether wildcard certificates are issued too: one is valid for names that others may own
    /// later
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
    pub(crate) fn permits(&self, issuer: &str, namespace: &str, hostname: &Hostname) -> bool {
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
    pub(crate) fn check(
        &self,
        issuer: &str,
        namespace: &str,
        hostname: &Hostname,
    ) -> Result<(), (Reason, String)> {
        if self.permits(issuer, namespace, hostname) {
            return Ok(());
        }
        let wildcards = if hostname.is_wildcard() {
            ", wildcards: true"
        } else {
            ""
        };
        let field = if issuer == INTERNAL_CA {
            "internalCa.allow".to_owned()
        } else {
            format!("issuers.{issuer}.allow")
        };
        let text = format!(
            "issuer {issuer} does not issue certificates for {hostname} to listeners of namespace {namespace}: refer to a \
             Secret of your own in tls.certificateRefs, or have whoever runs Gatewright allow it in the configuration, in {field}: \
             {{namespaces: [{namespace}], hostnames: ['{hostname}']{wildcards}}}"
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

impl From<IssuerAllow> for Written {
    fn from(rule: IssuerAllow) -> Self {
        Self {
            namespaces: rule.namespaces.iter().map(ToString::to_string).collect(),
            hostnames: rule.hostnames.iter().map(ToString::to_string).collect(),
            wildcards: rule.wildcards,
        }
    }
}

impl fmt::Display for NamespacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(name) => f.write_str(name),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

impl fmt::Display for HostnamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(name) | Self::Below(name) => name.fmt(f),
        }
    }
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
    use serde_json::json;

    use super::*;

    fn rule(written: serde_json::Value) -> IssuerAllow {
        serde_json::from_value(written).expect("a rule")
    }

    #[test]
    fn a_rule_permits_its_namespaces_its_hostnames_and_no_others() {
        let mut policy = IssuerPolicy::new(Unlisted::Nobody);
        policy.allow(
            "acme",
            rule(json!({"namespaces": ["alice", "team-*"],
                "hostnames": ["app.example.org", "*.alice.example.org"]})),
        );
        policy.allow(
            "internal-ca",
            rule(
                json!({"namespaces": ["bob"], "hostnames": ["*.corp.example"], "wildcards": true}),
            ),
        );
        policy.allow(
            "open",
            rule(json!({"namespaces": ["*"], "hostnames": ["*"]})),
        );
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
            "in issuers.acme.allow: {namespaces: [mallory], hostnames: ['a.example.org']}",
        ] {
            assert!(refused.1.contains(word), "{}", refused.1);
        }
    }

    #[test]
    fn a_rule_is_written_as_it_was_read() {
        let written = json!({"namespaces": ["*", "a", "team-*"],
            "hostnames": ["*", "a.example", "*.a.example"], "wildcards": true});
        let read = rule(written.clone());
        assert_eq!(serde_json::to_value(read).expect("JSON"), written);
    }

    #[test]
    fn an_invalid_rule_is_named() {
        for (namespaces, hostnames, word) in [
            (
                json!(["Alice"]),
                json!(["a.example"]),
                "namespace \"Alice\"",
            ),
            (json!(["a*b"]), json!(["a.example"]), "namespace \"a*b\""),
            (json!([""]), json!(["a.example"]), "namespace \"\""),
            (json!(["alice"]), json!(["A.example"]), "upper-case"),
            (json!(["alice"]), json!([""]), "hostname \"\""),
            (json!([]), json!(["a.example"]), "at least one"),
        ] {
            let written = json!({"namespaces": namespaces, "hostnames": hostnames});
            let error = serde_json::from_value::<IssuerAllow>(written).expect_err(word);
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
