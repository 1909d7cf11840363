//! What the engine asks of a DNS provider and of the check that a record can be seen.
//!
//! A record is named by its full name *and* its value: several values may stand at one name (apex and wildcard
//! of one order share `_acme-challenge.<name>`, RFC 8555, 8.4), and nothing foreign is ever removed.
//! Records are persisted by the engine before [`DnsProvider::present`] is called, so that a cleanup after a
//! restart needs nothing but the record.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// One TXT value at one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TxtRecord {
    /// Full name in lower case, without the trailing dot; the target already, where the name is delegated by CNAME.
    pub name: String,
    /// The one value of ours: base64url of a SHA-256 digest (RFC 8555, 8.4), unquoted.
    pub value: String,
    /// Time to live in seconds.
    pub ttl: u32,
}

/// Writes TXT records into a zone.
#[async_trait]
pub trait DnsProvider: Send + Sync {
    /// A short, stable name for messages and metrics: `cloudflare`, `route53`, `digitalocean`, `rfc2136`, `webhook`.
    fn name(&self) -> &str;

    /// The zone this provider would write `name` into, without the trailing dot.
    ///
    /// Asked before an order is placed, so that a zone we may not write costs no order.
    async fn zone_of(&self, name: &str) -> Result<String, DnsError>;

    /// Adds the value; other values at the name stay. Adding a value that is there already is success.
    ///
    /// Returns once the provider says that its own servers have it (Route 53: `INSYNC`).
    async fn present(&self, record: &TxtRecord) -> Result<(), DnsError>;

    /// Removes exactly this value; other values at the name stay. Removing what is not there is success.
    async fn cleanup(&self, record: &TxtRecord) -> Result<(), DnsError>;
}

/// Reads DNS: where a challenge is delegated to, and whether a record can be seen.
#[async_trait]
pub trait DnsView: Send + Sync {
    /// The name at which the TXT value of `name` is to be written: the end of an exact CNAME chain at `name`,
    /// or `name` itself. A CNAME synthesised from a wildcard does not count.
    async fn challenge_target(&self, name: &str) -> Result<String, DnsError>;

    /// Asks the authoritative servers once: do all that answer have the value?
    ///
    /// The engine repeats it until [`Seen::Everywhere`] or its deadline.
    async fn seen(&self, record: &TxtRecord) -> Result<Seen, DnsError>;

    /// The values at a name that every authoritative server has; those of servers that do not answer are not missed.
    async fn values(&self, name: &str) -> Result<Vec<String>, DnsError>;
}

/// What the authoritative servers say about a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// All servers that answer have it; `silent` did not answer and are a warning, not a block.
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

/// When a failed call may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsRetry {
    /// Not without a change of configuration: wrong credentials, a zone we may not write.
    Never,
    /// Later, at the engine's own back-off.
    Later,
    /// Not before this much time has passed; the provider said so.
    After(Duration),
}

/// What went wrong with a DNS provider.
///
/// Messages name the provider, the name and the fix, carry no credentials, and are stable: no request ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    /// The provider refuses the credentials.
    #[error("{provider} refuses the credentials: {message}")]
    Credentials {
        /// Provider.
        provider: String,
        /// What it said, and the fix.
        message: String,
    },
    /// No zone of the provider holds the name.
    #[error("{provider} has no zone for {name}: {message}")]
    NoZone {
        /// Provider.
        provider: String,
        /// The name that was looked for.
        name: String,
        /// What was tried.
        message: String,
    },
    /// The provider takes the credentials and refuses this change.
    #[error("{provider} refuses to change {name}: {message}")]
    Refused {
        /// Provider.
        provider: String,
        /// The record.
        name: String,
        /// What it said, and the fix.
        message: String,
    },
    /// Too many requests.
    #[error("{provider} asks to slow down")]
    Throttled {
        /// Provider.
        provider: String,
        /// When to come back, if it said so.
        retry_after: Option<Duration>,
    },
    /// The provider cannot be reached, or fails on its side.
    #[error("{provider} cannot be reached: {message}")]
    Unavailable {
        /// Provider.
        provider: String,
        /// What happened.
        message: String,
    },
    /// The configuration of the provider makes no sense.
    #[error("{provider}: {message}")]
    Config {
        /// Provider.
        provider: String,
        /// Which field, and the fix.
        message: String,
    },
    /// The answer cannot be understood.
    #[error("{provider} answered something unexpected: {message}")]
    Protocol {
        /// Provider.
        provider: String,
        /// What was expected, what was found.
        message: String,
    },
}

impl DnsError {
    /// Whose error it is.
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

    /// Whether and when the call may be made again.
    pub fn retry(&self) -> DnsRetry {
        match self {
            Self::Credentials { .. } | Self::NoZone { .. } | Self::Refused { .. } | Self::Config { .. } => {
                DnsRetry::Never
            }
            Self::Throttled { retry_after: Some(after), .. } => DnsRetry::After(*after),
            Self::Throttled { retry_after: None, .. } | Self::Unavailable { .. } | Self::Protocol { .. } => {
                DnsRetry::Later
            }
        }
    }
}
