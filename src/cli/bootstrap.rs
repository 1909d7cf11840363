//! `gatewright bootstrap`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::State;

/// `bootstrap`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  gatewright bootstrap > bootstrap.json && envoy -c bootstrap.json
  gatewright bootstrap --xds gatewright-xds.gatewright-system.svc:18000 --tls-dir /tls \\
    --envoy-admin /run/admin.sock --memory-limit 2147483648 --file /run/bootstrap.json")]
pub struct Bootstrap {
    /// The Envoy's name in statuses and logs
    #[arg(long, default_value = "envoy")]
    pub node: String,
    /// Where its admin socket is to be [default: envoy-admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub envoy_admin: Option<PathBuf>,
    /// The controller, for an Envoy in a cluster [default: the socket of `gatewright standalone`]
    #[arg(long, value_name = "HOST:PORT", requires_all = ["tls_dir", "envoy_admin", "file"])]
    pub xds: Option<String>,
    /// Directory with the Envoy's tls.crt, tls.key and ca.crt
    #[arg(long, value_name = "DIR", requires = "xds")]
    pub tls_dir: Option<PathBuf>,
    /// Where it says over HTTP that it is ready, at /ready, for a load balancer that asks so: once its first configuration has
    /// come, and until it drains. No Gateway can have that port, and who reaches it can use it up: in a pod `gatewright
    /// ready` is the better probe [default: nowhere]
    #[arg(long, value_name = "ADDRESS", requires = "xds")]
    pub ready: Option<SocketAddr>,
    /// What its container may use, in bytes: close below nine tenths of it on the heap it takes no more requests
    #[arg(long, value_name = "BYTES", requires = "xds", default_value_t = 4 << 30, value_parser = clap::value_parser!(u64).range(1 << 26..))]
    pub memory_limit: u64,
    /// Write it to this file, and xds-keys.json and xds-roots.json beside it, instead of printing it
    #[arg(long, value_name = "FILE", requires = "xds")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub state: State,
}
