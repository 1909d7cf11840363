//! `images`: which images an installation runs.

use std::path::PathBuf;

use clap::Args;

use super::Output;

/// `images`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright images                                            of an installation without values of its own
  gatewright images --values digests.yaml                      by the digests of a release
  gatewright images --values values.yaml -o json | jq -r '.[].reference'
Images without a digest are pinned by nothing but their tag.")]
pub struct Images {
    /// Values that the chart is installed with, as of helm --values; may be repeated, the last takes precedence
    #[arg(short = 'f', long, value_name = "FILE")]
    pub values: Vec<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}
