//! The ways to prove control of a name.

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
    /// draft-ietf-acme-dns-account-label: the label names the account, so that several may prove one name at once.
    #[serde(rename = "dns-account-01")]
    DnsAccount01,
    /// draft-ietf-acme-dns-persist: a record that stays binds the name to the account.
    #[serde(rename = "dns-persist-01")]
    DnsPersist01,
}

impl ChallengeKind {
    /// As the protocol writes it.
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
    /// Sees them.
    pub view: Arc<dyn DnsView>,
    /// Time to live of the records, in seconds.
    pub ttl: u32,
    /// How long a record may need to be seen everywhere.
    pub propagation_limit: Duration,
    /// Prefer `dns-account-01` where the CA offers it.
    pub account_label: bool,
}

/// dns-persist-01: records that bind names to our account.
#[derive(Clone)]
pub struct Persist {
    /// Sees them.
    pub view: Arc<dyn DnsView>,
    /// For how many days a record of ours binds; without it, for ever.
    pub days: Option<u32>,
}

/// What can be proven, and how.
#[derive(Clone, Default)]
pub struct Solvers {
    /// Answers HTTP-01.
    pub http: Option<Arc<dyn HttpSolver>>,
    /// Answers DNS-01.
    pub dns: Option<DnsSolver>,
    /// Sees records that stay: dns-persist-01, where the CA offers it. With `dns`, a missing record is written.
    pub persist: Option<Persist>,
    /// Answers TLS-ALPN-01.
    pub alpn: Option<Arc<dyn AlpnSolver>>,
}

impl Solvers {
    /// HTTP-01, answered by whoever knows the thumbprint.
    pub fn stateless_http() -> Self {
        Self { http: Some(Arc::new(http::Stateless)), ..Self::default() }
    }

    /// The challenge to take among those offered: a wildcard only by DNS (RFC 8555, 7.1.3 leaves it to the CA; the
    /// CA/Browser Forum does not), else HTTP, TLS, DNS, the cheapest first.
    pub(crate) fn choose(&self, name: &DnsName, offered: &[ChallengeKind]) -> Option<ChallengeKind> {
        let account_label = self.dns.as_ref().is_some_and(|d| d.account_label);
        let order = [
            (ChallengeKind::DnsPersist01, self.persist.is_some()),
            (ChallengeKind::Http01, self.http.is_some() && !name.is_wildcard()),
            (ChallengeKind::TlsAlpn01, self.alpn.is_some() && !name.is_wildcard()),
            (ChallengeKind::DnsAccount01, account_label),
            (ChallengeKind::Dns01, self.dns.is_some()),
        ];
        order.into_iter().find(|(kind, able)| *able && offered.contains(kind)).map(|(kind, _)| kind)
    }

    /// Can any challenge prove this name?
    pub(crate) fn can_prove(&self, name: &DnsName) -> bool {
        self.dns.is_some()
            || self.persist.is_some()
            || (!name.is_wildcard() && (self.http.is_some() || self.alpn.is_some()))
    }

    /// The kinds that may be used for a name, for messages and CAA.
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

/// Where the record of a DNS challenge stands.
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
    let (mut buffer, mut bits) = (0u32, 0);
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(b"abcdefghijklmnopqrstuvwxyz234567"[(buffer >> bits) as usize & 31] as char);
        }
    }
    if bits > 0 {
        text.push(b"abcdefghijklmnopqrstuvwxyz234567"[(buffer << (5 - bits)) as usize & 31] as char);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_proven_by_dns_only() {
        let solvers = Solvers::stateless_http();
        let all = [ChallengeKind::Http01, ChallengeKind::Dns01, ChallengeKind::TlsAlpn01];
        assert_eq!(solvers.choose(&DnsName::parse("a.example").expect("a name"), &all), Some(ChallengeKind::Http01));
        assert_eq!(solvers.choose(&DnsName::parse("*.a.example").expect("a name"), &all), None);
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
