//! Commands that read manifests alone: `gatewright translate` and `gatewright lint`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use gatewright_core::limits::Limits;

use super::{Document, Endpoints, GatewayApi, IssuerUse, Output, Tenants};

/// `translate`
#[derive(Clone, Debug, Args)]
pub struct Translate {
    /// A file, a directory, or `-` for standard input
    pub path: PathBuf,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Document::Yaml)]
    pub output: Document,
    /// Address for Gateways without spec.addresses; may be repeated
    #[arg(long = "address", value_name = "IP", default_value = "127.0.0.1")]
    pub addresses: Vec<IpAddr>,
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
    pub tenants: Tenants,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub issuer_use: IssuerUse,
}

/// `lint`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Found are hostnames that routes would not get (conflicts, out of the apex, wildcards that cannot be issued, names
that collide, limits), what is wrong with TenantGateways, and references that do not resolve or need a ReferenceGrant.

Example:
  kubectl get gateways,httproutes,tenantgateways,namespaces -A -o yaml | gatewright lint -

Exit status: 0 nothing was found, 1 something was, 2 the command line is wrong.")]
pub struct Lint {
    /// A file, a directory, or `-` for standard input
    pub path: PathBuf,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Say what would not fit without ListenerSets
    #[arg(long)]
    pub no_listener_sets: bool,
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
    pub issuer_use: IssuerUse,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub endpoints: Endpoints,
}
