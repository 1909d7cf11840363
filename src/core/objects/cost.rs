//! The cost model: the bytes that a part of an object takes in the memory of an Envoy and of this
//! program. Pure.
//!
//! Envoy's bytes are those by which the resident memory of an Envoy with two workers grew, a tenth
//! more: it keeps the protobuf message and what it makes of it, and its allocator returns little of
//! what an update needed meanwhile. Those of the program are the same for the program.
//! `e2e/tests/isolation/cost.rs` fills a namespace in each dimension to a part of its quota, and
//! fails if the model is below half of what a process grew, or above three times that.
//!
//! Those of the API server are counted exactly: what entries of the record of ownership take in
//! ConfigMaps (`cost/record.rs`).

use std::iter::Sum;
use std::ops::{Add, Mul};

mod certificate;
mod policy;
mod record;
mod request;
mod route;
mod token;
mod traces;

pub use certificate::{chain, served};
pub use policy::{guarded, settings, tls};
pub use record::{of_owner, of_tenant};
pub use request::{MATCH_LESS, matching};
pub(crate) use route::of_check;
pub use route::{OfServices, hostname, of_auth};
pub use token::{
    FETCHED_TIME, OTHER_KEY, P384, P521, TOKEN_BYTES, TOKEN_TIME, milliseconds, time_of_token,
    token_time,
};
pub use traces::traces;

/// Bytes in the memory of an Envoy, and of this program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes {
    /// In an Envoy.
    pub envoy: u64,
    /// In this program.
    pub program: u64,
}

impl Bytes {
    pub(crate) const fn of(envoy: u64, program: u64) -> Self {
        Self { envoy, program }
    }
}

/// How often a rule needs its filters: each match has those of its own, and each backend may have
/// them again, for a session.
#[derive(Clone, Copy)]
pub struct RuleSize {
    /// The matches.
    pub matches: u64,
    /// The backends; at least one.
    pub backends: u64,
}

impl Add for Bytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            envoy: self.envoy.saturating_add(other.envoy),
            program: self.program.saturating_add(other.program),
        }
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}

impl Mul<u64> for Bytes {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self {
            envoy: self.envoy.saturating_mul(times),
            program: self.program.saturating_mul(times),
        }
    }
}

/// An object that is translated, whether or not an Envoy gets anything of it: parsed, its
/// references, and its status.
pub const OBJECT: Bytes = Bytes::of(0, 8_000);
/// A hostname of a route at a listener, with its first match: a virtual host of a table, or a
/// scope.
const HOST: Bytes = Bytes::of(7_000, 6_000);
/// A hostname of a route at an HTTPS listener, on a port of plain HTTP that redirects it.
pub const REDIRECTED: Bytes = Bytes::of(11_500, 3_000);
/// A match.
const MATCH: Bytes = Bytes::of(4_500, 500);
/// A byte of a text, beside what has the text.
pub(crate) const TEXT: Bytes = Bytes::of(5, 3);
/// A condition on a header, on a query parameter, or on the method.
const CONDITION: Bytes = Bytes::of(800, 120);
/// A regular expression, and an instruction of it as RE2 compiles it. What RE2 keeps of it under
/// traffic is in `Regexes`.
pub(crate) const REGEX: Bytes = Bytes::of(3_000, 200);
pub(crate) const INSTRUCTION: Bytes = Bytes::of(50, 0);
/// A header that a filter sets or adds, and one that it removes.
pub(crate) const EDIT: Bytes = Bytes::of(730, 60);
pub(crate) const REMOVAL: Bytes = Bytes::of(200, 50);
/// The weighted share of a backend, beside its cluster, and the rewrite of a share.
const SHARE: Bytes = Bytes::of(1_300, 100);
pub(crate) const SHARE_REWRITE: Bytes = Bytes::of(6_000, 100);
/// A rewrite, or a redirect.
pub(crate) const LOCATION: Bytes = Bytes::of(300, 100);
/// An answer that a rule gives itself, beside its texts.
const ANSWER: Bytes = Bytes::of(600, 200);
/// A copy of requests.
const MIRROR: Bytes = Bytes::of(900, 150);
/// Filter CORS, an allowed origin of it, and a name of a header or method.
const CORS: Bytes = Bytes::of(28_000, 500);
const ORIGIN: Bytes = Bytes::of(3_100, 200);
/// A byte of an origin with a wildcard, of whose expression RE2 keeps some states for each.
const PATTERN_BYTE: Bytes = Bytes::of(900, 0);
const CORS_NAME: Bytes = Bytes::of(60, 40);
/// Retries, and a status that is retried.
const RETRY: Bytes = Bytes::of(500, 100);
const RETRY_CODE: Bytes = Bytes::of(120, 10);
/// A filter ExternalAuth: each match has one of its own.
const AUTH: Bytes = Bytes::of(10_000, 1_500);
/// A match whose filters all matches of its rule share, and an AccessPolicy beside its settings.
const MARKED_MATCH: Bytes = Bytes::of(6_000, 200);
const ACCESS: Bytes = Bytes::of(4_000, 200);
/// A match of a rule whose matches share the filters of a TrafficPolicy.
pub(crate) const LIMITED_MATCH: Bytes = Bytes::of(3_000, 100);
/// The script of a cluster of key sets or of a login, which each thread of Envoy has.
pub const SCRIPT: Bytes = Bytes::of(310_000, 0);
/// The session persistence of a match or share.
const SESSION: Bytes = Bytes::of(3_800, 500);
/// The hash of a share's requests, for each match.
const HASH: Bytes = Bytes::of(1_500, 200);
/// A cluster: a Service port, or a hostname that is passed through.
pub const CLUSTER: Bytes = Bytes::of(45_000, 5_000);
/// TLS of a cluster, beside its CA certificates.
const CLUSTER_TLS: Bytes = Bytes::of(14_000, 6_000);
/// The settings of a cluster by a policy, and the table of a consistent hash.
const CLUSTER_SETTINGS: Bytes = Bytes::of(4_000, 1_000);
const HASH_TABLE: Bytes = Bytes::of(30_000, 0);
/// The active checks of an endpoint, with a connection and its buffers, and the passive ones.
const ACTIVE_CHECK: Bytes = Bytes::of(24_000, 0);
const PASSIVE_CHECK: Bytes = Bytes::of(2_500, 0);
/// A byte of CA certificates, of which each cluster has its own copy, and those of the system.
const CA_BYTE: Bytes = Bytes::of(4, 1);
const SYSTEM_ROOTS: Bytes = Bytes::of(320_000, 0);
/// A certificate, for each hostname that clients connect to, and a byte of its chain in PEM.
const CERTIFICATE: Bytes = Bytes::of(24_000, 1_000);
const CHAIN_BYTE: Bytes = Bytes::of(6, 1);
/// An endpoint of a cluster.
pub const ENDPOINT: Bytes = Bytes::of(2_300, 1_500);
/// A filter chain of a Listener, 20 KB of it for its access log.
pub const FILTER_CHAIN: Bytes = Bytes::of(40_000, 12_000);
/// A collector that gets the access log of a port or filter chain.
pub const LOG_COLLECTOR: Bytes = Bytes::of(43_000, 0);
/// A listener of a Gateway or ListenerSet, beside its port.
pub const LISTENER: Bytes = Bytes::of(9_000, 16_000);
/// The tracing of a port or filter chain, and an attribute of its spans or a header of the requests
/// by which they are exported, beside their texts.
const TRACER: Bytes = Bytes::of(90_000, 1_000);
const SPAN_ATTRIBUTE: Bytes = Bytes::of(700, 100);
/// The expression by which an attribute has what a client wrote.
const SPAN_EXPRESSION: Bytes = Bytes::of(7_000, 0);
/// A port of HTTP, with or without TLS: a Listener of Envoy's.
pub const PORT_HTTP: Bytes = Bytes::of(250_000, 40_000);
/// A port of TCP.
pub const PORT_TCP: Bytes = Bytes::of(50_000, 40_000);
/// A port of UDP.
pub const PORT_UDP: Bytes = Bytes::of(85_000, 50_000);

pub(crate) fn text(text: &str) -> Bytes {
    TEXT * text.len() as u64
}

/// What an object takes of everything that its namespace has a quota of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Memory.
    pub bytes: Bytes,
    /// Clusters of an Envoy.
    pub clusters: u64,
    /// Filter chains of the Listener of a port.
    pub filter_chains: u64,
    /// Of the memory of an Envoy that in tables of other namespaces' listeners, which Envoy reads
    /// anew for each change of anybody's in them.
    pub shared_tables: u64,
    /// Bytes of the record of ownership in the API server.
    pub record: u64,
}

/// What a namespace has a quota of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dimension {
    /// Memory of an Envoy.
    Envoy,
    /// Memory of this program.
    Program,
    /// Clusters.
    Clusters,
    /// Filter chains.
    FilterChains,
    /// Tables of other namespaces' listeners.
    SharedTables,
    /// The record of ownership.
    Record,
}

impl Dimension {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Envoy,
        Self::Program,
        Self::Clusters,
        Self::FilterChains,
        Self::SharedTables,
        Self::Record,
    ];
    /// Those that whole objects take; hostnames one by one take the rest.
    pub const OF_OBJECTS: [Self; 5] = [
        Self::Envoy,
        Self::Program,
        Self::Clusters,
        Self::FilterChains,
        Self::SharedTables,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy_bytes",
            Self::Program => "program_bytes",
            Self::Clusters => "clusters",
            Self::FilterChains => "filter_chains",
            Self::SharedTables => "shared_table_bytes",
            Self::Record => "record_bytes",
        }
    }

    /// The path in the configuration of the quota of every namespace.
    pub fn option(self) -> &'static str {
        match self {
            Self::Envoy => "limits.namespace.envoyMib",
            Self::Program => "limits.namespace.programMib",
            Self::Clusters => "limits.namespace.clusters",
            Self::FilterChains => "limits.namespace.filterChains",
            Self::SharedTables => "a sixteenth of limits.namespace.envoyMib",
            Self::Record => "limits.namespace.recordKib",
        }
    }

    /// Its name and unit, as the head of a column.
    pub fn head(self) -> &'static str {
        match self {
            Self::Envoy => "ENVOY MIB",
            Self::Program => "PROGRAM MIB",
            Self::Clusters => "CLUSTERS",
            Self::FilterChains => "FILTER CHAINS",
            Self::SharedTables => "SHARED TABLES MIB",
            Self::Record => "RECORD KIB",
        }
    }

    /// An amount in its unit, rounded up to one digit.
    pub fn number(self, amount: u64) -> String {
        let bytes = match self {
            Self::Envoy | Self::Program | Self::SharedTables => 1 << 20,
            Self::Record => 1 << 10,
            Self::Clusters | Self::FilterChains => 1,
        };
        let tenths = amount.saturating_mul(10).div_ceil(bytes);
        match tenths % 10 {
            0 => (tenths / 10).to_string(),
            tenth => format!("{}.{tenth}", tenths / 10),
        }
    }

    /// An amount as text.
    pub fn amount(self, amount: u64) -> String {
        let number = self.number(amount);
        match self {
            Self::Envoy => format!("{number} MiB of an Envoy's memory"),
            Self::Program => format!("{number} MiB of the controller's memory"),
            Self::Clusters if amount == 1 => "1 cluster".to_owned(),
            Self::Clusters => format!("{number} clusters"),
            Self::FilterChains if amount == 1 => "1 filter chain".to_owned(),
            Self::FilterChains => format!("{number} filter chains"),
            Self::SharedTables => format!("{number} MiB in tables of other namespaces' listeners"),
            Self::Record => format!("{number} KiB of the record of ownership"),
        }
    }

    /// What takes less of it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Envoy | Self::Program => {
                "fewer matches, hostnames, listeners, header edits, origins or backends need less"
            }
            Self::Clusters => {
                "a Service port is one cluster for each Gateway with a client certificate, a hostname that is passed \
                 through is another"
            }
            Self::FilterChains => {
                "a wildcard hostname with TLS, and a hostname of a TLSRoute with several backends, is one"
            }
            Self::SharedTables => {
                "routes for exact hostnames, or below a wildcard listener of the namespace's own, need none"
            }
            Self::Record => "fewer or shorter hostnames need less",
        }
    }
}

impl Cost {
    /// The part in a dimension.
    pub fn of(self, dimension: Dimension) -> u64 {
        match dimension {
            Dimension::Envoy => self.bytes.envoy,
            Dimension::Program => self.bytes.program,
            Dimension::Clusters => self.clusters,
            Dimension::FilterChains => self.filter_chains,
            Dimension::SharedTables => self.shared_tables,
            Dimension::Record => self.record,
        }
    }

    /// The difference of two costs; 0 in a dimension where the other one is larger.
    pub fn less(self, other: Self) -> Self {
        let bytes = Bytes {
            envoy: self.bytes.envoy.saturating_sub(other.bytes.envoy),
            program: self.bytes.program.saturating_sub(other.bytes.program),
        };
        Self {
            bytes,
            clusters: self.clusters.saturating_sub(other.clusters),
            filter_chains: self.filter_chains.saturating_sub(other.filter_chains),
            shared_tables: self.shared_tables.saturating_sub(other.shared_tables),
            record: self.record.saturating_sub(other.record),
        }
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            clusters: self.clusters.saturating_add(other.clusters),
            filter_chains: self.filter_chains.saturating_add(other.filter_chains),
            shared_tables: self.shared_tables.saturating_add(other.shared_tables),
            record: self.record.saturating_add(other.record),
        }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::add)
    }
}
