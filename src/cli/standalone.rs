//! `gatewright standalone`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use gatewright_core::limits::Limits;

use super::{Acme, Edge, Endpoints, EnvoyProcess, GatewayApi, InternalCa, IssuerUse, Log, State, Tenants};

/// `standalone`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright standalone --once            try the built-in example: exit 0 when every page came
  gatewright standalone ./manifests --envoy /usr/local/bin/envoy
  gatewright standalone ./manifests --take-over   after an upgrade: takes the running program's place
  gatewright standalone ./manifests --no-envoy    for Envoys started with `gatewright bootstrap`")]
pub struct Standalone {
    /// The directory to watch; without it the built-in example is served
    pub dir: Option<PathBuf>,
    /// Check that everything is served, print the table, and exit 0 or 1
    #[arg(long)]
    pub once: bool,
    /// The Envoy to run [default: `envoy` on PATH, else the one that `make demo` installed]
    #[arg(long, value_name = "PATH", conflicts_with = "no_envoy")]
    pub envoy: Option<PathBuf>,
    /// Start no Envoy
    #[arg(long)]
    pub no_envoy: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub envoy_process: EnvoyProcess,
    /// Address for Gateways without spec.addresses; may be repeated
    #[arg(long = "address", value_name = "IP", default_value = "127.0.0.1")]
    pub addresses: Vec<IpAddr>,
    /// Where this program's admin socket is [default: admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub admin: Option<PathBuf>,
    /// Where Envoy's admin socket is [default: envoy-admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub envoy_admin: Option<PathBuf>,
    /// Take manifests that others may write, and links out of the directory
    #[arg(long)]
    pub allow_unsafe_manifests: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub gateway_api: GatewayApi,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub limits: Limits,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub endpoints: Endpoints,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub acme: Acme,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub issuer_use: IssuerUse,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub internal_ca: InternalCa,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub edge: Edge,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub log: Log,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub tenants: Tenants,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub state: State,
}
