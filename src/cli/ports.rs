//! Access to the ports of the controller, and its last good state.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Access to the ports of a controller.
#[derive(Clone, Debug, Args)]
pub struct Ports {
    /// Maximum number of xDS streams of one client address; of an IPv6 /64, 16 times as many. An
    /// Envoy has one: raise it if several Envoys share an address, for example behind a NAT
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub xds_streams_per_address: u32,
    /// Maximum number of xDS streams of a fleet at this replica
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub xds_streams_per_fleet: u32,
    /// Directory with tls.crt and tls.key, to serve /livez, /readyz and /metrics over TLS; changed
    /// files are reloaded [default: plain HTTP]
    #[arg(long, value_name = "DIR")]
    pub probes_tls_dir: Option<PathBuf>,
    /// Access to /metrics
    #[arg(long, value_enum, default_value_t = MetricsAccess::Open)]
    pub metrics_access: MetricsAccess,
}

/// Access to the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MetricsAccess {
    /// Every client that can reach the port
    Open,
    /// Clients with a token that the API server authenticates (TokenReview), of a user with the
    /// verb get on the non-resource URL /metrics (SubjectAccessReview)
    Authorized,
}

/// The last good state, for the next start.
#[derive(Clone, Debug, Args)]
pub struct Keeping {
    /// File for the last good configuration of Envoys, encrypted, for a start without an API
    /// server; place it on a volume that outlives the container [default: not stored]
    #[arg(long, value_name = "FILE", requires = "last_good_key")]
    pub last_good: Option<PathBuf>,
    /// File with the encryption key of --last-good, at least 32 bytes, from the Secret
    /// gatewright-last-good, which the lease holder creates
    #[arg(long, value_name = "FILE", requires = "last_good")]
    pub last_good_key: Option<PathBuf>,
}
