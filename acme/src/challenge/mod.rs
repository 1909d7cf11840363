//! Challenges: the ways to prove control of a name to a CA, and the choice between those that a CA
//! offers.

pub mod alpn;
pub mod dns;
pub mod http;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::names::DnsName;
use alpn::AlpnSolver;
use dns::{DnsProvider, DnsView};
use http::HttpSolver;

/// A kind of challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChallengeKind {
    /// RFC 8555, 8.3.
    #[serde(rename = "http-01")]
    Http01,
    /// RFC 8555, 8.4.
    #[serde(rename = "dns-01")]
    Dns01,
    /// RFC 8737.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// draft-ietf-acme-dns-account-label: the DNS label names the account, so that several accounts
    /// may prove one name at once.
    #[serde(rename = "dns-account-01")]
    DnsAccount01,
    /// draft-ietf-acme-dns-persist: a permanent DNS record binds the name to the account.
    #[serde(rename = "dns-persist-01")]
    DnsPersist01,
}

impl ChallengeKind {
    /// Returns the type of the challenge as the protocol spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::Dns01 => "dns-01",
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::DnsAccount01 => "dns-account-01",
            Self::DnsPersist01 => "dns-persist-01",
        }
    }
}

/// DNS-01 with one provider.
#[derive(Clone)]
pub struct DnsSolver {
    /// Writes the records.
    pub provider: Arc<dyn DnsProvider>,
    /// Checks that they can be seen.
    pub view: Arc<dyn DnsView>,
    /// Time to live of the records, in seconds.
    pub ttl: u32,
    /// Time within which a record must be visible at all authoritative servers.
    pub propagation_limit: Duration,
    /// True to prefer `dns-account-01` where the CA offers it.
    pub account_label: bool,
}

/// dns-persist-01: permanent records that bind names to our account.
#[derive(Clone)]
pub struct Persist {
    /// Reads the records.
    pub view: Arc<dyn DnsView>,
    /// Validity of a record that we write, in days; None is unlimited.
    pub days: Option<u32>,
}

/// The challenges that can be solved, and their solvers.
#[derive(Clone, Default)]
pub struct Solvers {
    /// Answers HTTP-01.
    pub http: Option<Arc<dyn HttpSolver>>,
    /// Answers DNS-01.
    pub dns: Option<DnsSolver>,
    /// Checks permanent records (dns-persist-01) where the CA offers it. With `dns`, a missing
    /// record is written.
    pub persist: Option<Persist>,
    /// Answers TLS-ALPN-01.
    pub alpn: Option<Arc<dyn AlpnSolver>>,
}

impl Solvers {
    /// HTTP-01 with stateless answers.
    pub fn stateless_http() -> Self {
        Self {
            http: Some(Arc::new(http::Stateless)),
            ..Self::default()
        }
    }

    /// Chooses a challenge among those offered, the cheapest first: dns-persist-01, HTTP, TLS, DNS.
    /// A wildcard can be proven by DNS only (RFC 8555, 7.1.3 leaves it to the CA; the CA/Browser
    /// Forum does not).
    pub(crate) fn choose(
        &self,
        name: &DnsName,
        offered: &[ChallengeKind],
    ) -> Option<ChallengeKind> {
        let account_label = self.dns.as_ref().is_some_and(|d| d.account_label);
        let order = [
            (ChallengeKind::DnsPersist01, self.persist.is_some()),
            (
                ChallengeKind::Http01,
                self.http.is_some() && !name.is_wildcard(),
            ),
            (
                ChallengeKind::TlsAlpn01,
                self.alpn.is_some() && !name.is_wildcard(),
            ),
            (ChallengeKind::DnsAccount01, account_label),
            (ChallengeKind::Dns01, self.dns.is_some()),
        ];
        order
            .into_iter()
            .find(|(kind, able)| *able && offered.contains(kind))
            .map(|(kind, _)| kind)
    }

    /// Returns true if any challenge can prove this name.
    pub(crate) fn can_prove(&self, name: &DnsName) -> bool {
        self.dns.is_some()
            || self.persist.is_some()
            || (!name.is_wildcard() && (self.http.is_some() || self.alpn.is_some()))
    }

    /// Returns the kinds that are configured, for messages and CAA.
    pub fn kinds(&self) -> Vec<ChallengeKind> {
        [
            self.http.as_ref().map(|_| ChallengeKind::Http01),
            self.alpn.as_ref().map(|_| ChallengeKind::TlsAlpn01),
            self.dns.as_ref().map(|_| ChallengeKind::Dns01),
            self.persist.as_ref().map(|_| ChallengeKind::DnsPersist01),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Returns the name of a DNS challenge's record.
pub(crate) fn dns_label(kind: ChallengeKind, name: &DnsName, account_url: &str) -> String {
    match kind {
        ChallengeKind::DnsAccount01 => {
            let digest = Sha256::digest(account_url.as_bytes());
            format!("_{}._acme-challenge.{}", base32(&digest[..10]), name.base())
        }
        _ => format!("_acme-challenge.{}", name.base()),
    }
}

/// Base32 in lower case without padding (RFC 4648, 6).
fn base32(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut buffer = 0u32;
    let mut bits = 0;
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(b"abcdefghijklmnopqrstuvwxyz234567"[(buffer >> bits) as usize & 31] as char);
        }
    }
    if bits > 0 {
        text.push(
            b"abcdefghijklmnopqrstuvwxyz234567"[(buffer << (5 - bits)) as usize & 31] as char,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_proven_by_dns_only() {
        let solvers = Solvers::stateless_http();
        let all = [
            ChallengeKind::Http01,
            ChallengeKind::Dns01,
            ChallengeKind::TlsAlpn01,
        ];
        assert_eq!(
            solvers.choose(&DnsName::parse("a.example").expect("a name"), &all),
            Some(ChallengeKind::Http01)
        );
        assert_eq!(
            solvers.choose(&DnsName::parse("*.a.example").expect("a name"), &all),
            None
        );
        assert!(!solvers.can_prove(&DnsName::parse("*.a.example").expect("a name")));
    }

    #[test]
    fn the_account_label_is_the_one_of_the_draft() {
        // draft-ietf-acme-dns-account-label, 3.2: the example of the draft.
        let label = dns_label(
            ChallengeKind::DnsAccount01,
            &DnsName::parse("example.org").expect("a name"),
            "https://example.com/acme/acct/ExampleAccount",
        );
        assert_eq!(label, "_ujmmovf2vn55tgye._acme-challenge.example.org");
    }
}
