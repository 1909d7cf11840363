//! `gatewright logs`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Asking, State, host};

/// `logs`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Prints the access log of the Envoy that standalone starts: the time, status, method, host and path of each request, and
why no backend answered it. Which requests have a line is a matter of spec.accessLog of GatewayParameters: docs/logging.md.
With --context or --kubeconfig the lines are those of all Envoys of a cluster, as far as their pods keep them: of hostnames of your
namespace, or of all namespaces with -A.

Examples:
  gatewright logs --errors                        requests that failed
  gatewright logs --host shop.example.org -f      requests for a host, as they end
  gatewright logs --lines 1000 -o json | jq .reason    with all fields
  gatewright logs --context prod -n team-a -f     of a namespace of a cluster, as they end")]
pub struct Logs {
    /// Only requests for this host, also with a port or in a URL
    #[arg(long, value_name = "HOST", value_parser = host::host_or_other)]
    pub host: Option<String>,
    /// Only requests of hostnames of this namespace; in a cluster, your namespace
    /// [default there: that of the context]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Only requests that failed: status 500 and more, or not answered by a backend
    #[arg(long)]
    pub errors: bool,
    /// Go on with each new line
    #[arg(short, long)]
    pub follow: bool,
    /// Most lines to print of those that are there; of a cluster 2000 at most
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub lines: usize,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = LinesFormat::Text)]
    pub output: LinesFormat,
    /// Path of the access log [default: access.log in the private directory]
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub state: State,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub asking: Asking,
}

/// The format of printed lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LinesFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object per line, with the fields of the access log and the reason.
    Json,
}
