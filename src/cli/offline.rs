//! Commands that read manifests alone: `gatewright translate` and `gatewright lint`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use super::{Configured, Document, Output, UserCluster, WrittenManifests};

/// `translate`
#[derive(Clone, Debug, Args)]
pub struct Translate {
    /// Path of a file or a directory of manifests, or `-` for standard input
    pub path: PathBuf,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Document::Yaml)]
    pub output: Document,
    /// Address of Gateways without spec.addresses; may be repeated
    #[arg(long = "address", value_name = "IP", default_value = "127.0.0.1")]
    pub addresses: Vec<IpAddr>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub manifests: WrittenManifests,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub configured: Configured,
}

/// `lint`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Reports hostnames that routes would not get (no listener takes them, conflicts, outside of the apex, wildcards that
cannot be issued, name collisions, limits), problems of TenantGateways, classes and parents that do not exist, and
references that do not resolve or lack a ReferenceGrant. The input is taken as all objects that there are; with
--context or --kubeconfig as objects that are about to be applied to that cluster, beside what its user may read there.
References to what that user may not read are listed on standard error, and are not judged.

Examples:
  gatewright lint ./manifests --context prod -n team-a
  kubectl get gatewayclasses,gateways,listenersets,httproutes,tenantgateways,namespaces,services -A -o yaml | gatewright lint -

Exit status: 0 no problems, 1 problems were found, 2 invalid command line.")]
pub struct Lint {
    /// Path of a file or a directory of manifests, or `-` for standard input; may be repeated
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Assume a cluster without ListenerSets: report hostnames beyond the 64 listeners of a Gateway
    #[arg(long)]
    pub no_listener_sets: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub manifests: WrittenManifests,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub configured: Configured,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub user: UserCluster,
}
