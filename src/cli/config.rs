//! `gatewright config`: looks at the configuration.

use clap::{Args, Subcommand};

use super::Configured;

/// `config`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright config explain limits.namespace           what the fields of a section mean
  gatewright config check --config gatewright.yaml     find problems before a rollout
  gatewright config print --set lease.seconds=30       the whole document, with every default

Exit status: 0 success, 1 the configuration is invalid, 2 invalid command line.")]
pub struct Config {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "described at its type")]
    pub verb: ConfigVerb,
}

/// The subcommands of `config`.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigVerb {
    /// Print the whole configuration: the file, --set and every default
    Print(Configured),
    /// Check the configuration and the files that it names
    Check(Configured),
    /// Print what a field means, with its type, default and fields
    Explain {
        /// Path of the field, as limits.namespace; the whole document without it
        #[arg(default_value = "")]
        field: String,
    },
    /// Print the JSON schema of the configuration, for editors
    Schema,
}
