//! `gatewright init`.

use std::path::PathBuf;

use clap::Args;

/// `init`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright init              writes ./site, and prints how to check and serve it
  gatewright init /etc/gatewright/site

For hostnames and backends without manifests see `gatewright serve`.")]
pub struct Init {
    /// Directory for the manifests, which is made, or has no files
    #[arg(default_value = "site")]
    pub dir: PathBuf,
}
