//! What the log looks like.

use clap::{Args, ValueEnum};

/// The log of a program that runs for long; what is logged is said by `GATEWRIGHT_LOG`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log")]
pub struct Log {
    /// How lines of the log on standard error look: for people, or a JSON object each with the fields of an event (object,
    /// namespace, condition, reason, envoy, ...)
    #[arg(long, value_enum, value_name = "FORMAT", env = "GATEWRIGHT_LOG_FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object.
    Json,
}
