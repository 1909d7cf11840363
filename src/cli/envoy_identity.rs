//! `gatewright envoy-identity`.

use std::path::PathBuf;

use clap::Args;

/// `envoy-identity`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Sends the controller the pod's service account token (projected volume, audience gatewright-xds) and a certificate request, and
gets a certificate for this pod only. The private key is created here and never sent. The certificate is renewed when a third of
its lifetime is left, and when the CA of the controller changes. All files are replaced atomically, as by the kubelet, and Envoy
reloads them without a restart.

Examples:
  gatewright envoy-identity --once ...     get the first certificate before Envoy starts (init container)
  gatewright envoy-identity --controller gatewright-xds.gatewright-system.svc:18001 \\
    --token /identity/token --roots /identity/ca.crt --dir /run/envoy/tls")]
pub struct EnvoyIdentity {
    /// Address of the controller's service that issues certificates for pods (its --envoy-identity)
    #[arg(long, value_name = "HOST:PORT")]
    pub controller: String,
    /// File with the service account token of the pod; it is read again before each request
    #[arg(long, value_name = "FILE")]
    pub token: PathBuf,
    /// File with the CA certificates to trust for the controller, from the ConfigMap
    /// gatewright-xds-roots
    #[arg(long, value_name = "FILE")]
    pub roots: PathBuf,
    /// Directory for tls.crt, tls.key, ca.crt, and the zone of the node: --tls-dir of `gatewright
    /// bootstrap`
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Exit when the first certificate is written
    #[arg(long)]
    pub once: bool,
}
