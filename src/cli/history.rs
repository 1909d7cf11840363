//! `history`

use clap::Args;
use jiff::Timestamp;

use super::{Asking, RunningProgram, host};

/// `history`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright history                                  the last changes
  gatewright history shop.example.org                 what touched a hostname
  gatewright history httproute/shop -n team-a         what was written to an object
  gatewright history --since 2026-11-26T03:05:00Z --until 2026-11-26T03:20:00Z
  gatewright history --context prod -n team-a         what touched a namespace of a cluster
The running program remembers the last changes in memory, up to 8,192 of them and 8 MiB, and a share of each
namespace and kind. In a cluster each pod has its own since its start; the lease holder knows every Envoy, and answers.")]
pub struct History {
    /// Hostname, also with a port or in a URL, or KIND/NAME of an object: print only changes that
    /// touched it
    #[arg(value_name = "HOST|KIND/NAME", value_parser = host::host_or_other)]
    pub what: Option<String>,
    /// Namespace of the changed objects; in a cluster, your namespace, which the answer is about
    /// [default there: that of the context]
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Print only changes from this time on (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub since: Option<Timestamp>,
    /// Print only changes up to this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub until: Option<Timestamp>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub program: RunningProgram,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub asking: Asking,
}
