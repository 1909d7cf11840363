//! A hostname of a listener or route: exact, wildcard, or none at all.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A validated, lower-case hostname: `app.example.org`, `*.example.org`, or the empty one that
/// matches all names.
///
/// Rules: Gateway API `Hostname` (RFC 1123 labels, at most 253 characters, one leading `*.` label
/// allowed, no IP address). `*.example.org` covers one or more labels in front of `example.org`,
/// never `example.org` itself.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Hostname(Arc<str>);

impl TryFrom<String> for Hostname {
    type Error = HostnameError;

    fn try_from(text: String) -> Result<Self, HostnameError> {
        Self::parse(&text)
    }
}

impl From<Hostname> for String {
    fn from(hostname: Hostname) -> Self {
        hostname.as_str().to_owned()
    }
}

/// Why a text is no hostname. The message says what was found and what to write instead.
///
/// A pointer, to be small: it is stored in a `Result` with hostnames, most of which are valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct HostnameError(Box<Fault>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    /// Empty, as an empty value of a template is.
    #[error("hostname \"\" is empty: write a hostname, or remove it")]
    Empty,
    /// Not all lower case.
    #[error("hostname {0:?} has upper-case letters: write it in lower case")]
    UpperCase(String),
    /// Ends with a dot.
    #[error("hostname {0:?} ends with a dot: leave the dot out")]
    TrailingDot(String),
    /// Not ASCII.
    #[error("hostname {0:?} is not ASCII: write international names in punycode (xn--...)")]
    NotAscii(String),
    /// An IPv4 or IPv6 literal.
    #[error("hostname {0:?} is an IP address: a DNS name is expected")]
    IpAddress(String),
    /// A wildcard somewhere else than as the whole first label.
    #[error("hostname {0:?}: a wildcard must be the whole first label, as in *.example.org")]
    Wildcard(String),
    /// Longer than 253 characters.
    #[error("hostname {0:?} is longer than 253 characters")]
    TooLong(String),
    /// A label that RFC 1123 does not allow.
    #[error(
        "hostname {0:?}: label {1:?} must be 1 to 63 characters of a-z, 0-9 and '-', not starting or ending with '-'"
    )]
    Label(String, String),
}

impl Hostname {
    /// The hostname that matches every name (an absent `hostname`).
    pub fn any() -> Self {
        Self(Arc::from(""))
    }

    /// Parses a user's text. Nothing is corrected: a text that is not canonical is refused with the
    /// reason.
    pub fn parse(text: &str) -> Result<Self, HostnameError> {
        Self::check(text).map_err(|fault| HostnameError(Box::new(fault)))
    }

    fn check(text: &str) -> Result<Self, Fault> {
        if text.is_empty() {
            return Err(Fault::Empty);
        }
        if !text.is_ascii() {
            return Err(Fault::NotAscii(own(text)));
        }
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(Fault::UpperCase(own(text)));
        }
        if text.ends_with('.') {
            return Err(Fault::TrailingDot(own(text)));
        }
        if text.len() > 253 {
            return Err(Fault::TooLong(own(text)));
        }
        if text
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok()
        {
            return Err(Fault::IpAddress(own(text)));
        }
        let rest = text.strip_prefix("*.").unwrap_or(text);
        if rest.contains('*') {
            return Err(Fault::Wildcard(own(text)));
        }
        for label in rest.split('.') {
            let ends = label.starts_with('-') || label.ends_with('-');
            let bytes = label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            if label.is_empty() || label.len() > 63 || ends || !bytes {
                return Err(Fault::Label(own(text), label.to_owned()));
            }
        }
        Ok(Self(Arc::from(text)))
    }

    /// The text; empty for the hostname that matches all names.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if this is the empty hostname.
    pub fn is_any(&self) -> bool {
        self.0.is_empty()
    }

    /// True if this is a wildcard, `*.something`.
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with("*.")
    }

    /// True if this names exactly one host.
    pub fn is_exact(&self) -> bool {
        !self.is_any() && !self.is_wildcard()
    }

    /// The suffix `.example.org` of `*.example.org`.
    fn suffix(&self) -> Option<&str> {
        self.is_wildcard().then(|| &self.0[1..])
    }

    /// The wildcard one level up: `*.example.org` for `app.example.org` and for
    /// `*.app.example.org`. `None` for a top-level label and for the empty hostname.
    pub fn parent(&self) -> Option<Hostname> {
        let bare = self.0.strip_prefix("*.").unwrap_or(&self.0);
        let (_, parent) = bare.split_once('.')?;
        (!parent.is_empty()).then(|| Hostname(Arc::from(format!("*.{parent}"))))
    }

    /// All wildcards that cover this name, the most specific first, without the empty hostname.
    pub fn covering(&self) -> impl Iterator<Item = Hostname> {
        std::iter::successors(self.parent(), Hostname::parent)
    }

    /// True if every name that `other` matches is matched by `self`.
    pub fn covers(&self, other: &Hostname) -> bool {
        if self.is_any() || self == other {
            return true;
        }
        match self.suffix() {
            Some(suffix) => {
                let name = other.suffix().unwrap_or(&other.0);
                name.len() > suffix.len() && name.ends_with(suffix)
            }
            None => false,
        }
    }

    /// True if a certificate with these names is valid for it: a wildcard in a certificate stands
    /// for one label (RFC 9525, 6.3).
    pub fn is_certified_by(&self, names: &[Hostname]) -> bool {
        let wildcard = if self.is_exact() { self.parent() } else { None };
        names
            .iter()
            .any(|name| name.is_any() || name == self || Some(name) == wildcard.as_ref())
    }

    /// The names that both match, `None` if there are none. Gateway API: intersection of listener
    /// and route hostnames.
    pub fn intersection(&self, other: &Hostname) -> Option<Hostname> {
        if self.covers(other) {
            Some(other.clone())
        } else if other.covers(self) {
            Some(self.clone())
        } else {
            None
        }
    }

    /// Precedence of hostnames: more characters in an exact name first, then longer wildcards, the
    /// empty one last. `Less` means "goes first". Gateway API: `HTTPRouteSpec.hostnames`,
    /// precedence across routes.
    pub fn precedence(&self, other: &Hostname) -> Ordering {
        rank(other)
            .cmp(&rank(self))
            .then_with(|| self.0.cmp(&other.0))
    }
}

fn own(text: &str) -> String {
    text.to_owned()
}

fn rank(h: &Hostname) -> (bool, usize) {
    (h.is_exact(), h.0.len())
}

/// The order of the texts, so that collections of hostnames have one order everywhere.
impl Ord for Hostname {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Hostname {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_any() { "*" } else { &self.0 })
    }
}

impl fmt::Debug for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn h(text: &str) -> Hostname {
        if text.is_empty() {
            Hostname::any()
        } else {
            Hostname::parse(text).expect("a hostname")
        }
    }

    #[test]
    fn odd_spellings_are_refused_with_their_reason() {
        for (text, part) in [
            ("", "empty"),
            ("App.example.org", "upper-case"),
            ("app.example.org.", "dot"),
            ("bücher.example", "punycode"),
            ("192.0.2.1", "IP address"),
            ("[2001:db8::1]", "IP address"),
            ("a.*.example.org", "wildcard"),
            ("*", "wildcard"),
            ("-a.example", "label"),
            ("a..example", "label"),
        ] {
            let error = Hostname::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_wildcard_covers_one_or_more_labels_but_not_its_apex() {
        let wild = h("*.example.org");
        assert!(wild.covers(&h("a.example.org")) && wild.covers(&h("a.b.example.org")));
        assert!(wild.covers(&h("*.b.example.org")) && !wild.covers(&h("example.org")));
        assert!(!wild.covers(&h("badexample.org")) && !h("*.b.example.org").covers(&wild));
    }

    #[test]
    fn precedence_puts_exact_before_wildcard_and_longer_before_shorter() {
        let mut names = [
            h(""),
            h("*.a.org"),
            h("b.a.org"),
            h("*.b.a.org"),
            h("long.a.org"),
        ];
        names.sort_by(Hostname::precedence);
        let texts: Vec<_> = names.iter().map(Hostname::as_str).collect();
        assert_eq!(texts, ["long.a.org", "b.a.org", "*.b.a.org", "*.a.org", ""]);
    }

    proptest! {
        #[test]
        fn intersection_is_symmetric_and_covered_by_both(a in "(\\*\\.)?([ab]\\.){0,2}org|", b in "(\\*\\.)?([ab]\\.){0,2}org|") {
            let (a, b) = (h(&a), h(&b));
            let both = a.intersection(&b);
            prop_assert_eq!(&both, &b.intersection(&a));
            if let Some(both) = both {
                prop_assert!(a.covers(&both) && b.covers(&both));
            }
        }
    }
}
