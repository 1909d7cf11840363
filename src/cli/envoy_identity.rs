//! `gatewright envoy-identity`.

use std::path::PathBuf;

use clap::Args;

/// `envoy-identity`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Shows the controller the pod's token (a projected volume, audience gatewright-xds), and gets a certificate for this pod alone: the
key is made here and leaves nowhere. Renewed when a third of its life is left, and when the CA of the controller changes. The files
are replaced all at once, as the kubelet does it, so that Envoy takes them without a restart.

Examples:
  gatewright envoy-identity --once ...     get the first one, before Envoy starts (an init container)
  gatewright envoy-identity --controller gatewright-xds.gatewright-system.svc:18001 \\
    --token /identity/token --roots /identity/ca.crt --dir /run/envoy/tls")]
pub struct EnvoyIdentity {
    /// Where the controller gives certificates (its --envoy-identity)
    #[arg(long, value_name = "HOST:PORT")]
    pub controller: String,
    /// File with the token of the pod, which is read again each time
    #[arg(long, value_name = "FILE")]
    pub token: PathBuf,
    /// File with the CA certificates of the controller, from the ConfigMap gatewright-xds-roots
    #[arg(long, value_name = "FILE")]
    pub roots: PathBuf,
    /// Directory for tls.crt, tls.key and ca.crt: --tls-dir of gatewright bootstrap
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// End as soon as there is a certificate
    #[arg(long)]
    pub once: bool,
}
