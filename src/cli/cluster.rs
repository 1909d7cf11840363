//! The cluster that a command reads with the rights of a person.

use std::path::PathBuf;

use clap::Args;

use super::RunningProgram;

/// The kubeconfig, and where the installation is.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct Cluster {
    /// Context of the kubeconfig: read the API server with the rights of its user, and no running
    /// program. `kubectl gatewright` reads the current context
    #[arg(long, value_name = "NAME", global = true)]
    pub context: Option<String>,
    /// Path of the kubeconfig: read the API server of its current context, or of --context
    /// [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the installation, with its configuration and the record of ownership
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "gatewright-system",
        global = true
    )]
    pub installation: String,
    /// True if the program runs as a plugin of kubectl.
    #[arg(skip)]
    pub is_plugin: bool,
}

impl Cluster {
    /// True if the API server is to be read.
    pub fn is_asked(&self) -> bool {
        self.is_plugin || self.context.is_some() || self.kubeconfig.is_some()
    }
}

/// Where a command asks a running program in a cluster, by a ReportRequest.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct Asking {
    /// Ask in the namespace of the installation, whose answers are about all namespaces
    #[arg(short = 'A', long, global = true)]
    pub all_namespaces: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub cluster: Cluster,
}

impl Asking {
    /// True if the program of a cluster is to be asked, and not one at a socket or a bundle.
    pub fn is_asked(&self, program: &RunningProgram) -> bool {
        self.cluster.is_asked() && program.bundle.is_none()
    }
}
