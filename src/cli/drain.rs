//! `gatewright drain`.

use std::path::PathBuf;

use clap::Args;

/// `drain`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Runs until it is told to end (SIGTERM), as everything in a pod is that is deleted. Then:
  1. Envoy serves on as before for --serve seconds, while nodes and load balancers take the pod out.
  2. It is ready no more and asks its clients to connect elsewhere, until no connection is left, for at most --drain seconds.
  3. Envoy ends.
Envoy ends at once when it is told to itself: put that off for as long as both take (preStop: sleep), and let the pod have as
much time (terminationGracePeriodSeconds). deploy/envoy.yaml does.

Example:
  gatewright drain --envoy-admin /run/envoy/admin.sock --serve 15 --drain 25")]
pub struct Drain {
    /// Where Envoy's admin socket is
    #[arg(long, value_name = "SOCKET")]
    pub envoy_admin: PathBuf,
    /// How long Envoy serves on as before
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub serve: u64,
    /// How long connections have to end after that; not less than Envoy's --drain-time-s
    #[arg(long, value_name = "SECONDS", default_value_t = 25, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub drain: u64,
}
