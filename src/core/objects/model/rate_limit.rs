//! Rate limits: how many requests a TrafficPolicy lets pass.

use std::sync::Arc;
use std::time::Duration;

use super::ObjectName;

/// The limits of one TrafficPolicy: a request passes all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateLimits {
    /// The policy.
    pub policy: ObjectName,
    /// At least one.
    pub limits: Arc<[RateLimit]>,
}

/// The rate limits of a rule. All of its matches at a hostname of a port share the token buckets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleLimits {
    /// The name of the rule's routes.
    pub rule: Arc<str>,
    /// The limits.
    pub all: Arc<RateLimits>,
}

/// A limit by a token bucket, which begins full.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateLimit {
    /// The tokens that are added in each unit of time; at least one.
    pub requests: u32,
    /// The unit of time.
    pub per: LimitUnit,
    /// The most tokens of a bucket; at least one.
    pub burst: u32,
    /// Those who share a bucket.
    pub by: LimitedBy,
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitUnit {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
}

/// Those who share a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LimitedBy {
    /// All clients.
    Everyone,
    /// The clients with one IPv4 address, or in one IPv6 network of 64 bits.
    ClientAddress {
        /// The most buckets; beyond it the one that was not used for longest is given up.
        clients: u32,
    },
    /// The requests with one value of a header. Only the first [`HEADER_BYTES`] of it count, and
    /// requests without the header share a bucket.
    Header {
        /// The name in lower case.
        name: String,
        /// The most buckets, as above.
        clients: u32,
    },
}

/// The bytes of a header's value that tell clients apart.
pub const HEADER_BYTES: u32 = 128;

impl LimitUnit {
    /// Its length.
    pub fn duration(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        })
    }

    /// Its name in a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
        }
    }
}

impl RateLimits {
    /// The most buckets of each limit in an Envoy, which has one number for all limits of a policy.
    pub fn buckets(&self) -> u32 {
        let buckets = self.limits.iter().map(|limit| limit.by.buckets());
        buckets.max().unwrap_or(1)
    }
}

impl LimitedBy {
    /// The most buckets of a limit.
    pub fn buckets(&self) -> u32 {
        match self {
            Self::Everyone => 1,
            Self::ClientAddress { clients } | Self::Header { clients, .. } => *clients,
        }
    }
}
