//! Who may do what at the ports of the controller, and what it keeps for its next start.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What the ports of a controller give to whom.
#[derive(Clone, Debug, Args)]
pub struct Ports {
    /// How many xDS streams one address may have open, and of IPv6 one /64 sixteen times as many: an Envoy has one. More are
    /// wanted where several Envoys come from one address, through a NAT for one
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub xds_streams_per_address: u32,
    /// How many xDS streams a fleet of Envoys may have open at this replica
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub xds_streams_per_fleet: u32,
    /// A directory with tls.crt and tls.key, which are read again as they change: then /livez, /readyz and /metrics are
    /// served over TLS [default: plain HTTP]
    #[arg(long, value_name = "DIR")]
    pub probes_tls_dir: Option<PathBuf>,
    /// Who may read /metrics
    #[arg(long, value_enum, default_value_t = MetricsAccess::Open)]
    pub metrics_access: MetricsAccess,
}

/// Who may read the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MetricsAccess {
    /// Everybody who reaches the port
    Open,
    /// Whoever shows a token that the API server knows (TokenReview), of a user with the verb get on the non-resource URL
    /// /metrics (SubjectAccessReview)
    Authorized,
}

/// What a controller keeps for its next start.
#[derive(Clone, Debug, Args)]
pub struct Keeping {
    /// File in which what Envoys are told is kept, encrypted, for a start without an API server: on a volume that outlives the
    /// container [default: it is not kept]
    #[arg(long, value_name = "FILE", requires = "last_good_key")]
    pub last_good: Option<PathBuf>,
    /// File with the key of --last-good, 32 bytes or more: from the Secret gatewright-last-good, which the lease holder makes
    #[arg(long, value_name = "FILE", requires = "last_good")]
    pub last_good_key: Option<PathBuf>,
}
