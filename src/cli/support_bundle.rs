//! `gatewright support-bundle`.

use std::path::PathBuf;

use clap::Args;

use super::{State, UserCluster};

/// `support-bundle`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Writes one archive (tar, gzip; mode 0600) with configuration, manifests or objects, statuses, history, certificates, metrics, logs
and Envoy's own state. CONTENTS.md, its first file, says what is in it, what was left out, and what could not be read. Secrets
are not read, and keys, tokens, passwords, headers with credentials and values of queries are left out of the rest; names,
hostnames and addresses are in it. With --context or --kubeconfig it has what you may read of the cluster.

Examples:
  gatewright support-bundle                            of the program that serves a directory
  gatewright support-bundle --context prod             of a cluster
  kubectl -n gatewright-system exec POD -- gatewright support-bundle -o - > pod.tar.gz
  gatewright status --bundle gatewright-support.tar.gz
  gatewright explain --bundle gatewright-support.tar.gz https://shop.example.org/
Exit status: 0 the archive is written; 1 it is not; 3 no running program answers.")]
pub struct SupportBundle {
    /// File of the archive, which must not exist yet, or `-` for standard output
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "gatewright-support.tar.gz"
    )]
    pub output: PathBuf,
    /// Path of the running program's admin socket [default: admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub admin: Option<PathBuf>,
    /// Path of Envoy's admin socket [default: envoy-admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET", env = "GATEWRIGHT_ENVOY_ADMIN")]
    pub envoy_admin: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub state: State,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub user: UserCluster,
}
