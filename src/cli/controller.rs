//! `gatewright controller`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{Configured, Keeping, Log};

/// `controller`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright controller --config /etc/gatewright/configuration.yaml      in a pod, as in deploy/
  gatewright controller --kubeconfig ~/.kube/config --set envoys.addresses=[127.0.0.1]")]
pub struct Controller {
    /// Path of the kubeconfig for the API server [default: the pod's service account, else that of
    /// kubectl]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the controller: of its Lease, of the Secrets for xDS, and of the Services of
    /// Envoys
    #[arg(long, env = "POD_NAMESPACE", default_value = "gatewright-system")]
    pub namespace: String,
    /// Name of this replica in the Lease; must be unique [default: gatewright- and the process ID]
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
    /// UID of this replica's pod, the owner of the replica's records: they are garbage-collected
    /// with the pod [default: records have no owner]
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub pod_uid: Option<String>,
    /// Listening address of the xDS server for Envoys; `[::]` is every address of IPv6 and IPv4
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:18000")]
    pub xds: SocketAddr,
    /// Listening address of the service that issues certificates for pods of Envoys; unused with
    /// envoys.credentials Secret
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:18001")]
    pub envoy_identity: SocketAddr,
    /// Listening address of /livez, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8080")]
    pub probes: SocketAddr,
    /// Directory with tls.crt and tls.key, to serve /livez, /readyz and /metrics over TLS; changed
    /// files are reloaded [default: plain HTTP]
    #[arg(long, value_name = "DIR")]
    pub probes_tls_dir: Option<PathBuf>,
    /// Listening address of the responder for HTTP-01 challenges of Gateways of other data planes;
    /// the Service gatewright-challenges routes to it [default: none]
    #[arg(long, value_name = "ADDRESS")]
    pub challenges: Option<SocketAddr>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub keeping: Keeping,
    /// Path of this program's admin socket [default: none]
    #[arg(long, value_name = "SOCKET")]
    pub admin: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub configured: Configured,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub log: Log,
}
