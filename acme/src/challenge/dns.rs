//! The interfaces of DNS providers and of DNS look-ups that the engine solves DNS challenges by.
//!
//! A record is identified by its full name *and* its value: several values may stand at one name
//! (apex and wildcard of one order share `_acme-challenge.<name>`, RFC 8555, 8.4), and records of
//! others are never removed. The engine persists a record before it calls [`DnsProvider::present`],
//! so that a cleanup after a restart needs nothing but the record.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// One TXT value at one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TxtRecord {
    /// Full name in lower case, without the trailing dot; the target of the CNAME where the name is
    /// delegated by one.
    pub name: String,
    /// The value, unquoted: base64url of a SHA-256 digest (RFC 8555, 8.4), or the text of a
    /// dns-persist-01 record.
    pub value: String,
    /// Time to live in seconds.
    pub ttl: u32,
}

/// A DNS provider: writes TXT records into a zone.
#[async_trait]
pub trait DnsProvider: Send + Sync {
    /// A short, stable name for messages and metrics: `cloudflare`, `route53`, `digitalocean`,
    /// `rfc2136`, `webhook`.
    fn name(&self) -> &str;

    /// Returns the zone that this provider would write `name` into, without the trailing dot.
    ///
    /// Called before an order is placed, so that a zone without write permission costs no order.
    async fn zone_of(&self, name: &str) -> Result<String, DnsError>;

    /// Adds the value; other values at the name stay. Adding a value that is there already is
    /// success.
    ///
    /// Returns once the provider reports that its own servers have it (Route 53: `INSYNC`).
    async fn present(&self, record: &TxtRecord) -> Result<(), DnsError>;

    /// Removes exactly this value; other values at the name stay. Removing a value that is not
    /// there is success.
    async fn cleanup(&self, record: &TxtRecord) -> Result<(), DnsError>;
}

/// DNS look-ups: the target that a challenge is delegated to, and the visibility of records.
#[async_trait]
pub trait DnsView: Send + Sync {
    /// Returns the name at which the TXT value of `name` is to be written: the end of an exact
    /// CNAME chain at `name`, or `name` itself. A CNAME synthesised from a wildcard does not count.
    async fn challenge_target(&self, name: &str) -> Result<String, DnsError>;

    /// Queries the authoritative servers once for the value of a record.
    ///
    /// The engine repeats it until [`Seen::Everywhere`] or its deadline.
    async fn seen(&self, record: &TxtRecord) -> Result<Seen, DnsError>;

    /// Returns the values at a name that all authoritative servers that answer have.
    async fn values(&self, name: &str) -> Result<Vec<String>, DnsError>;
}

/// The propagation of a value to the authoritative servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// All servers that answer have it; servers in `silent` cause a warning, no failure.
    Everywhere {
        /// Servers that did not answer.
        silent: Vec<String>,
    },
    /// At least one server does not have it yet.
    NotYet {
        /// Servers that answered without the value.
        missing: Vec<String>,
    },
}

/// The time at which a failed call may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsRetry {
    /// Only after a change of configuration: wrong credentials, a zone without write permission.
    Never,
    /// After the engine's own back-off.
    Later,
    /// After this time, which the provider asked for.
    After(Duration),
}

/// The error of a call to a DNS provider.
///
/// Messages name the provider, the name and the fix, contain no credentials, and are stable: no
/// request ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    /// The provider refuses the credentials.
    #[error("{provider} refuses the credentials: {message}")]
    Credentials {
        /// Provider.
        provider: String,
        /// The provider's message, and the fix.
        message: String,
    },
    /// No zone of the provider holds the name.
    #[error("{provider} has no zone for {name}: {message}")]
    NoZone {
        /// Provider.
        provider: String,
        /// The name that was looked for.
        name: String,
        /// The candidates for a zone that were tried.
        message: String,
    },
    /// The provider accepts the credentials and refuses this change.
    #[error("{provider} refuses to change {name}: {message}")]
    Refused {
        /// Provider.
        provider: String,
        /// The record.
        name: String,
        /// The provider's message, and the fix.
        message: String,
    },
    /// The provider limits the rate of requests.
    #[error("{provider} asks to slow down")]
    Throttled {
        /// Provider.
        provider: String,
        /// The provider's `Retry-After`, if it sent one.
        retry_after: Option<Duration>,
    },
    /// The provider cannot be reached, or answers with a server error.
    #[error("{provider} cannot be reached: {message}")]
    Unavailable {
        /// Provider.
        provider: String,
        /// The cause.
        message: String,
    },
    /// The configuration of the provider is invalid.
    #[error("{provider}: {message}")]
    Config {
        /// Provider.
        provider: String,
        /// The field that is invalid, and the fix.
        message: String,
    },
    /// The provider's answer cannot be understood.
    #[error("{provider} answered something unexpected: {message}")]
    Protocol {
        /// Provider.
        provider: String,
        /// The expected and the actual answer.
        message: String,
    },
}

impl DnsError {
    /// Returns the name of the provider.
    pub fn provider(&self) -> &str {
        match self {
            Self::Credentials { provider, .. }
            | Self::NoZone { provider, .. }
            | Self::Refused { provider, .. }
            | Self::Throttled { provider, .. }
            | Self::Unavailable { provider, .. }
            | Self::Config { provider, .. }
            | Self::Protocol { provider, .. } => provider,
        }
    }

    /// Returns whether and when the call may be repeated.
    pub fn retry(&self) -> DnsRetry {
        match self {
            Self::Credentials { .. }
            | Self::NoZone { .. }
            | Self::Refused { .. }
            | Self::Config { .. } => DnsRetry::Never,
            Self::Throttled {
                retry_after: Some(after),
                ..
            } => DnsRetry::After(*after),
            Self::Throttled {
                retry_after: None, ..
            }
            | Self::Unavailable { .. }
            | Self::Protocol { .. } => DnsRetry::Later,
        }
    }
}
