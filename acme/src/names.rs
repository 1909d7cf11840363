//! DNS names of certificates, parsed once.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest DNS name (RFC 1035, 2.3.4).
const LONGEST_NAME: usize = 253;
/// Most names of a set: more than any CA accepts in one certificate; bounds foreign input.
const MOST_NAMES: usize = 1000;

/// A DNS name in lower case, without a trailing dot; it may begin with `*.` (RFC 6125, 6.4.3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DnsName(String);

impl DnsName {
    /// Parses a name; converts to lower case and removes one trailing dot.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name.parse::<std::net::IpAddr>().is_ok() {
            return Err(refuse("it is an IP address; expected a DNS name", text));
        }
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(refuse("expected 1 to 253 characters", text));
        }
        let base = name.strip_prefix("*.").unwrap_or(&name);
        for label in base.split('.') {
            if label.is_empty() || label.len() > 63 {
                return Err(refuse("each label has 1 to 63 characters", text));
            }
            if label.starts_with('-') || label.ends_with('-') {
                return Err(refuse(
                    "a label begins and ends with a letter or a digit",
                    text,
                ));
            }
            if !label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            {
                return Err(refuse(
                    "a label has letters, digits and hyphens; write other scripts as xn--, and a star only as the whole first label",
                    text,
                ));
            }
        }
        let last = base.rsplit('.').next().unwrap_or(base);
        if last.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refuse(
                "the last label is all digits, so it would be read as an IP address",
                text,
            ));
        }
        if name.len() != base.len() && !base.contains('.') {
            return Err(refuse(
                "a wildcard directly under a top-level domain is issued by nobody",
                text,
            ));
        }
        Ok(Self(name))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the name begins with `*.`.
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with("*.")
    }

    /// Returns the name without `*.`, which an ACME authorization has as its identifier (RFC 8555,
    /// 7.1.3).
    pub fn base(&self) -> &str {
        self.0.strip_prefix("*.").unwrap_or(&self.0)
    }

    /// Returns true if a certificate with this name is valid for `other`. A star stands for exactly
    /// one label (RFC 6125, 6.4.3).
    pub fn covers(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        self.is_wildcard()
            && !other.is_wildcard()
            && other
                .0
                .split_once('.')
                .is_some_and(|(_, parent)| parent == self.base())
    }

    /// Returns the registered domain (one label below the public suffix), by which CAs count
    /// certificates. For names outside the public suffix list it is the last two labels.
    pub fn registered_domain(&self) -> &str {
        public_suffix::registered_domain(self.base()).unwrap_or(self.base())
    }

    /// Returns true if the name itself is a public suffix, such as `co.uk`, for which no public CA
    /// issues.
    pub fn is_public_suffix(&self) -> bool {
        public_suffix::is_public_suffix(self.base())
    }
}

fn refuse(problem: &'static str, text: &str) -> NameError {
    NameError::Malformed {
        name: text.chars().take(300).collect(),
        problem,
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for DnsName {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl From<DnsName> for String {
    fn from(name: DnsName) -> Self {
        name.0
    }
}

/// The names of one certificate: a set that is not empty, sorted. Clones share their memory, since
/// a plan has several of each.
#[derive(Clone, Debug, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "BTreeSet<DnsName>", into = "BTreeSet<DnsName>")]
#[allow(
    clippy::derived_hash_with_manual_eq,
    reason = "equal names are equal, shared or not"
)]
pub struct Names(Arc<[DnsName]>);

impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Names {
    /// Parses a set of names.
    pub fn parse<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, NameError> {
        let set = names
            .into_iter()
            .map(|n| DnsName::parse(n.as_ref()))
            .collect::<Result<BTreeSet<_>, _>>()?;
        Self::try_from(set)
    }

    /// A set of one name.
    pub fn one(name: DnsName) -> Self {
        Self(Arc::new([name]))
    }

    /// Returns the names in order.
    pub fn iter(&self) -> impl Iterator<Item = &DnsName> {
        self.0.iter()
    }

    /// Returns the first name in order, by which messages name the certificate.
    pub fn first(&self) -> &DnsName {
        self.0
            .first()
            .expect("Names are not empty: every constructor checks it")
    }

    /// Returns the number of names.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns true if exactly this name is in the set.
    pub fn contains(&self, name: &DnsName) -> bool {
        self.0.binary_search(name).is_ok()
    }

    /// Returns true if a certificate for these names is valid for all of `others`.
    pub fn cover(&self, others: &Self) -> bool {
        others
            .iter()
            .all(|o| self.contains(o) || self.0.iter().any(|n| n.is_wildcard() && n.covers(o)))
    }

    /// Returns true if a name is in both sets, which an ARI replacement requires (RFC 9773, 5).
    pub fn share_with(&self, others: &Self) -> bool {
        Arc::ptr_eq(&self.0, &others.0) || self.0.iter().any(|name| others.contains(name))
    }

    /// Returns the union of both sets.
    pub fn union(&self, others: &Self) -> Self {
        let both: BTreeSet<&DnsName> = self.iter().chain(others.iter()).collect();
        Self(both.into_iter().cloned().collect())
    }

    /// Returns the names as texts, in order.
    pub fn to_strings(&self) -> Vec<String> {
        self.0.iter().map(|n| n.0.clone()).collect()
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => write!(f, "{}", self.first()),
            n => write!(f, "{} and {} more", self.first(), n - 1),
        }
    }
}

impl TryFrom<BTreeSet<DnsName>> for Names {
    type Error = NameError;
    fn try_from(set: BTreeSet<DnsName>) -> Result<Self, NameError> {
        match set.len() {
            0 => Err(NameError::Empty),
            n if n > MOST_NAMES => Err(NameError::TooMany {
                found: n,
                most: MOST_NAMES,
            }),
            _ => Ok(Self(set.into_iter().collect())),
        }
    }
}

impl From<Names> for BTreeSet<DnsName> {
    fn from(names: Names) -> Self {
        names.0.iter().cloned().collect()
    }
}

/// The reason why a name or a set of names cannot be in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not a DNS name.
    #[error("{name:?} cannot stand in a certificate: {problem}")]
    Malformed {
        /// The name.
        name: String,
        /// The violated rule.
        problem: &'static str,
    },
    /// The set is empty.
    #[error("a certificate needs at least one name")]
    Empty,
    /// The set has too many names.
    #[error("{found} names in one certificate, at most {most}")]
    TooMany {
        /// Number of names.
        found: usize,
        /// Most names allowed.
        most: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_to_one_spelling() {
        assert_eq!(
            DnsName::parse("WWW.Example.COM.").expect("a name").as_str(),
            "www.example.com"
        );
        assert!(
            DnsName::parse("*.example.com")
                .expect("a name")
                .is_wildcard()
        );
    }

    #[test]
    fn an_invalid_name_is_refused_with_the_reason() {
        for (text, word) in [
            ("192.0.2.1", "IP address"),
            ("::1", "IP address"),
            ("", "1 to 253"),
            ("a..b", "1 to 63"),
            ("-a.example", "begins and ends"),
            ("a_b.example", "letters, digits"),
            ("b*.example.com", "letters, digits"),
            ("a.*.example.com", "letters, digits"),
            ("*.com", "top-level"),
            ("ex\u{e4}mple.com", "xn--"),
            ("host.123", "all digits"),
            ("a\n.example", "letters, digits"),
        ] {
            let error = DnsName::parse(text).expect_err(text).to_string();
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_star_covers_exactly_one_label() {
        let star = DnsName::parse("*.example.com").expect("a name");
        for (name, covered) in [
            ("a.example.com", true),
            ("a.b.example.com", false),
            ("example.com", false),
            ("*.example.com", true),
        ] {
            assert_eq!(
                star.covers(&DnsName::parse(name).expect("a name")),
                covered,
                "{name}"
            );
        }
    }

    #[test]
    fn registered_domains_follow_the_public_suffix_list() {
        fn domain(n: &str) -> String {
            DnsName::parse(n)
                .expect("a name")
                .registered_domain()
                .to_owned()
        }
        assert_eq!(domain("a.b.example.co.uk"), "example.co.uk");
        assert_eq!(domain("*.example.com"), "example.com");
        assert_eq!(domain("shop.github.io"), "shop.github.io");
        assert!(DnsName::parse("co.uk").expect("a name").is_public_suffix());
        assert!(
            !DnsName::parse("example.co.uk")
                .expect("a name")
                .is_public_suffix()
        );
        assert!(
            !DnsName::parse("db.internal")
                .expect("a name")
                .is_public_suffix()
        );
    }
}
