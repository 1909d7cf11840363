//! `gatewright kinds`: what manifests may have.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `kinds`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright kinds                                      the kinds that are read, and their versions
  gatewright kinds explain trafficpolicy.spec.rateLimit what a field means, as kubectl explain
  gatewright kinds schema trafficpolicy                 its JSON schema, for editors and CI
  gatewright kinds schema --into schemas                all of them, a file for each kind

An editor with the YAML language server checks a manifest whose first line is
# yaml-language-server: $schema=schemas/trafficpolicy.json

Kinds of ours and of the Gateway API, with its experimental channel, have a schema; those of Kubernetes do not.

Exit status: 0 success, 1 there is no such kind or field, 2 invalid command line.")]
pub struct Kinds {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "described at its type")]
    pub verb: Option<KindsVerb>,
}

/// The subcommands of `kinds`.
#[derive(Clone, Debug, Subcommand)]
pub enum KindsVerb {
    /// Print the kinds that are read, with their versions
    List,
    /// Print what a field of a kind means, with its type, bounds and fields
    Explain {
        /// Kind, and path of the field, as trafficpolicy.spec.rateLimit
        field: String,
    },
    /// Print the JSON schema of a kind
    Schema {
        /// The kind
        #[arg(required_unless_present = "into", conflicts_with = "into")]
        kind: Option<String>,
        /// Directory for the schemas of all kinds; it is created if it is missing
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
    },
}
