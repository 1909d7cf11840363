//! The flags of every command that has the configuration of an installation.

use std::path::PathBuf;

use clap::Args;

use crate::configuration::{self, Configuration, ConfigurationError};

/// The configuration.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub struct Configured {
    /// File with the configuration of the installation (docs/reference/configuration.md) [default:
    /// none, every field has its default]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Field of the configuration, as limits.namespace.routes=500; it overrides the file. The value
    /// is YAML; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
}

impl Configured {
    /// Reads the configuration.
    ///
    /// # Errors
    /// When it is invalid; the error names the field.
    pub fn load(&self) -> Result<Configuration, ConfigurationError> {
        configuration::load(self.config.as_deref(), &self.set)
    }
}
