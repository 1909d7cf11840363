//! `gatewright ready`.

use std::path::PathBuf;

use clap::Args;

/// `ready`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
For an exec readiness probe in the pod of an Envoy: it opens no port, so clients cannot exhaust its connections. The probes of
a controller are repeated until it is ready or --patience has passed, as in `helm test`.

Examples:
  gatewright ready --envoy-admin /run/envoy/admin.sock
  gatewright ready --controller gatewright-metrics.gatewright-system.svc:8080 --patience 60
  gatewright ready --controller https://gatewright-metrics.gatewright-system.svc:8080 --roots ca.crt")]
pub struct Ready {
    /// Path of Envoy's admin socket
    #[arg(long, value_name = "SOCKET", required_unless_present = "controller")]
    pub envoy_admin: Option<PathBuf>,
    /// Address of a controller's probes (its --probes), to check the controller instead of an
    /// Envoy; or https:// and the address, where they use TLS
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "envoy_admin")]
    pub controller: Option<String>,
    /// CA certificates that verify a controller whose probes use TLS
    #[arg(long, value_name = "FILE", requires = "controller")]
    pub roots: Option<PathBuf>,
    /// Time limit for the answer of Envoy, or until the controller is ready, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub patience: u64,
}
