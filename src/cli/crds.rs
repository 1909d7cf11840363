//! `gatewright crds`: the CustomResourceDefinitions of this version.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `crds`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright crds apply                   the cluster of the current context
  gatewright crds apply --dry-run         what would become of each definition
  gatewright crds print > crds.yaml       for GitOps

A definition stays as it is if it is of a newer version of Gatewright, or if somebody else has installed it (TenantGateways
of Cozystack). Nothing is written if objects are stored in a version that a definition would no longer have.

Exit status: 0 success, 1 the API server or this command refused, 2 invalid command line.")]
pub struct Crds {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "described at its type")]
    pub verb: CrdsVerb,
}

/// The subcommands of `crds`.
#[derive(Clone, Debug, Subcommand)]
pub enum CrdsVerb {
    /// Write them to a cluster by server-side apply, and wait until the API server serves every
    /// field of them
    Apply {
        /// Context of the kubeconfig [default: the current one; in a pod its service account]
        #[arg(long, value_name = "NAME")]
        context: Option<String>,
        /// Path of the kubeconfig [default: $KUBECONFIG, else ~/.kube/config]
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        /// Have the API server judge them, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Print them as YAML
    Print,
}
