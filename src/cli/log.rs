//! The format of the log.

use clap::{Args, ValueEnum};

/// The log of a long-running command; `GATEWRIGHT_LOG` sets its filter.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log")]
pub struct Log {
    /// Format of the log on standard error: text, or one JSON object per line with the fields of
    /// the event (object, namespace, condition, reason, envoy, ...)
    #[arg(long, value_enum, value_name = "FORMAT", env = "GATEWRIGHT_LOG_FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// The format of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// A JSON object per line.
    Json,
}
