//! `gatewright drain`.

use std::path::PathBuf;

use clap::Args;

/// `drain`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Runs until SIGTERM, which all containers of a deleted pod get. Then:
  1. Envoy keeps serving as before for --serve seconds, while nodes and load balancers remove the pod.
  2. Envoy becomes unready and closes connections gracefully, until none is left, for at most --drain seconds.
  3. Envoy ends.
Envoy itself would end at once on SIGTERM: delay that by the sum of both durations (preStop: sleep) in its container, and set
terminationGracePeriodSeconds of the pod to more than the sum. deploy/envoy.yaml is an example.

Example:
  gatewright drain --envoy-admin /run/envoy/admin.sock --serve 15 --drain 25")]
pub struct Drain {
    /// Path of Envoy's admin socket
    #[arg(long, value_name = "SOCKET")]
    pub envoy_admin: PathBuf,
    /// Duration, in seconds, for which Envoy keeps serving as before, while nodes and load
    /// balancers remove the pod
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub serve: u64,
    /// Maximum duration of the drain after that, in seconds, until the remaining connections are
    /// closed; not less than Envoy's --drain-time-s
    #[arg(long, value_name = "SECONDS", default_value_t = 25, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub drain: u64,
}
