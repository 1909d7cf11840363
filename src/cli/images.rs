//! `images`: the container images of an installation.

use std::path::PathBuf;

use clap::Args;

use super::Output;

/// `images`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright images                                            with the chart's default values
  gatewright images --values digests.yaml                      pinned by the digests of a release
  gatewright images --values values.yaml -o json | jq -r '.[].reference'
An image without a digest is pinned by its tag only.")]
pub struct Images {
    /// File with values of the chart, as for helm --values; may be repeated, the last takes
    /// precedence
    #[arg(short = 'f', long, value_name = "FILE")]
    pub values: Vec<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}
