//! `envoy`: what an Envoy itself says, and taking it out of service.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::State;

/// `envoy`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Asks Envoy over its admin socket: in standalone that of the private directory, in a cluster that of the pod, from the
container drain. Keys, passwords and credentials in headers are left out. Whoever may run it sees the hostnames, routes and
addresses of all tenants that the Envoy serves (docs/security.md).

Examples:
  gatewright envoy stats 'downstream_rq_5xx|no_healthy_upstream'
  gatewright envoy clusters team-a/
  gatewright envoy config shop.example.org
  kubectl -n gatewright-system exec POD -c drain -- gatewright envoy drain
Exit status: 0 success, 1 Envoy refuses, 3 no Envoy answers.")]
pub struct Envoy {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "described at its type")]
    pub verb: EnvoyVerb,
    /// Path of Envoy's admin socket [default: envoy-admin.sock in the private directory]
    #[arg(
        long,
        value_name = "SOCKET",
        env = "GATEWRIGHT_ENVOY_ADMIN",
        global = true
    )]
    pub envoy_admin: Option<PathBuf>,
    /// Private directory of the running program
    /// [default: $XDG_STATE_HOME/gatewright/standalone, else ~/.local/state/gatewright/standalone]
    #[arg(long, value_name = "DIR", env = "GATEWRIGHT_STATE_DIR", global = true)]
    pub state_dir: Option<PathBuf>,
}

/// The subcommands of `envoy`.
#[derive(Clone, Debug, Subcommand)]
pub enum EnvoyVerb {
    /// Print statistics
    Stats {
        /// Regular expression (RE2) that names contain [default: all]
        filter: Option<String>,
        /// Print them in the format of Prometheus
        #[arg(long)]
        prometheus: bool,
    },
    /// Print the clusters, which are Service ports, with their endpoints and what these answered
    Clusters {
        /// Text that the names of clusters begin with, such as a namespace and a slash [default:
        /// all]
        name: Option<String>,
    },
    /// Print the configuration as Envoy has it, in JSON, without secrets
    Config {
        /// Text that a resource contains, such as a hostname: print only these [default: all]
        text: Option<String>,
    },
    /// Take Envoy out of service: it becomes unready, and HTTP connections are closed after their
    /// next response; it serves on whoever still comes
    Drain {
        /// Put it back into service
        #[arg(long)]
        undo: bool,
    },
}

impl Envoy {
    /// The private directory.
    pub fn state(&self) -> State {
        State {
            state_dir: self.state_dir.clone(),
        }
    }
}
