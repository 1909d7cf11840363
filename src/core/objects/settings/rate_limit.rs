//! `rateLimit` of a TrafficPolicy: how many requests pass.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::{Amount, Setting, Uses};
use crate::cost::{Bytes, LIMITED_MATCH, RuleSize, text as text_bytes};
use crate::inputs::ClassPolicyLimits;
use crate::inputs::text::{self, Refused};
use crate::inputs::trafficpolicy_value::{number, number_or};

/// The most rate limits of a policy.
const LIMITS: usize = 8;
/// The most requests of a limit, and of its burst.
const REQUESTS: u32 = 1_000_000;
/// The most clients that a limit can count by themselves.
const CLIENTS: u32 = 1_000_000;
/// As many of them as a limit has by default.
const DEFAULT_CLIENTS: u32 = 1_000;
/// A policy before a rule, a limit, and a client that is counted by itself, by its address or by a
/// header.
const RATE_LIMITS: Bytes = Bytes::of(8_000, 200);
const RATE_LIMIT: Bytes = Bytes::of(3_000, 100);
const LIMITED_ADDRESS: Bytes = Bytes::of(900, 0);
const LIMITED_HEADER: Bytes = Bytes::of(1_150, 0);

/// The limits of one TrafficPolicy: a request passes all of them. All matches of a rule at a
/// hostname of a port share the token buckets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RateLimits {
    /// At least one.
    pub limits: Arc<[RateLimit]>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenRateLimit {
    limit: WrittenLimit,
    by: WrittenBy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLimit {
    requests: i64,
    per: LimitUnit,
    burst: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenBy {
    r#type: ByType,
    header: Option<WrittenHeader>,
    max_clients: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
enum ByType {
    Everyone,
    ClientAddress,
    Header,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHeader {
    name: String,
}

impl Setting for RateLimits {
    type Written = Vec<WrittenRateLimit>;
    type Rules = Self;

    const USES: Uses = Uses {
        is_shared: true,
        ..Uses::ALL
    };

    fn read(written: Self::Written, _: &Arc<str>) -> Result<Self, String> {
        if written.is_empty() || written.len() > LIMITS {
            let found = written.len();
            return Err(format!(
                "rateLimit: 1 to {LIMITS} limits are expected, found {found}"
            ));
        }
        let limits = written
            .into_iter()
            .enumerate()
            .map(|(index, one)| limit(&format!("rateLimit[{index}]"), one))
            .collect::<Result<_, _>>()?;
        Ok(Self { limits })
    }

    fn amounts(&self, limits: &ClassPolicyLimits) -> Vec<Amount> {
        let told_apart = self
            .limits
            .iter()
            .filter(|limit| limit.by != LimitedBy::Everyone);
        let clients = told_apart.map(|limit| limit.by.buckets()).max();
        vec![
            Amount {
                asked: ("rateLimit", self.limits.len()),
                limit: ("rateLimits", limits.rate_limits),
            },
            Amount {
                asked: ("rateLimit[].by.maxClients", clients.unwrap_or(0) as usize),
                limit: ("rateLimitClients", limits.rate_limit_clients),
            },
        ]
    }

    /// With as many clients as they may count.
    fn cost(&self, rule: RuleSize) -> Bytes {
        let clients = u64::from(self.buckets());
        let each = self.limits.iter().map(|limit| {
            RATE_LIMIT
                + match &limit.by {
                    LimitedBy::Everyone => Bytes::default(),
                    LimitedBy::ClientAddress { .. } => LIMITED_ADDRESS * clients,
                    LimitedBy::Header { name, .. } => text_bytes(name) + LIMITED_HEADER * clients,
                }
        });
        RATE_LIMITS + LIMITED_MATCH * rule.matches + each.sum()
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

fn limit(field: &str, written: WrittenRateLimit) -> Result<RateLimit, String> {
    let WrittenRateLimit {
        limit: WrittenLimit {
            requests,
            per,
            burst,
        },
        by,
    } = written;
    let requests = number(&format!("{field}.limit.requests"), requests, 1..=REQUESTS)?;
    let field_burst = format!("{field}.limit.burst");
    Ok(RateLimit {
        requests,
        per,
        burst: number_or(&field_burst, burst, requests, 1..=REQUESTS)?,
        by: limited_by(&format!("{field}.by"), by)?,
    })
}

fn limited_by(field: &str, written: WrittenBy) -> Result<LimitedBy, String> {
    let WrittenBy {
        r#type,
        header,
        max_clients,
    } = written;
    if r#type == ByType::Everyone && max_clients.is_some() {
        return Err(format!(
            "{field}.maxClients: type Everyone counts all clients together"
        ));
    }
    let most = format!("{field}.maxClients");
    let clients = number_or(&most, max_clients, DEFAULT_CLIENTS, 1..=CLIENTS)?;
    match (r#type, header) {
        (ByType::Everyone, None) => Ok(LimitedBy::Everyone),
        (ByType::ClientAddress, None) => Ok(LimitedBy::ClientAddress { clients }),
        (ByType::Header, Some(WrittenHeader { name })) => Ok(LimitedBy::Header {
            name: header_name(&format!("{field}.header.name"), &name)?,
            clients,
        }),
        (ByType::Header, None) => Err(format!("{field}.header: type Header needs it")),
        (_, Some(_)) => Err(format!("{field}.header: it belongs to type Header")),
    }
}

/// The name of a header in lower case. It stands in a format of Envoy's, in which other characters
/// of names have a meaning.
fn header_name(field: &str, name: &str) -> Result<String, String> {
    text::header_name(field, name).map_err(|Refused(text)| text)?;
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if !is_plain {
        return Err(format!(
            "{field}: letters, digits, \"-\", \"_\" and \".\" are expected, found {}",
            text::quoted(name)
        ));
    }
    Ok(name.to_ascii_lowercase())
}
