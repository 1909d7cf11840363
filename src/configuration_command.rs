//! `gatewright config`: prints, checks and explains the configuration.

use std::fs::File;
use std::io::{self, Write};

use anyhow::{Context, Result};

use crate::cli::ConfigVerb;
use crate::configuration;

/// Runs the command. Returns true if the configuration is valid.
///
/// # Errors
/// When it is not, or a file that it names cannot be read.
pub fn run(verb: &ConfigVerb) -> Result<bool> {
    match verb {
        ConfigVerb::Print(configured) => {
            let configuration = configured.load()?;
            io::stdout().write_all(serde_yaml_ng::to_string(&configuration)?.as_bytes())?;
        }
        ConfigVerb::Check(configured) => {
            let configuration = configured.load()?;
            for (name, issuer) in &configuration.issuers {
                for file in issuer.files() {
                    File::open(file)
                        .with_context(|| format!("issuers.{name}: {}", file.display()))?;
                }
            }
        }
        ConfigVerb::Explain { field } => {
            let text = configuration::explain(field).with_context(|| {
                format!("{field}: no such field; `gatewright config explain` prints all sections")
            })?;
            io::stdout().write_all(text.as_bytes())?;
        }
        ConfigVerb::Schema => {
            let text = serde_json::to_string_pretty(&configuration::schema())?;
            writeln!(io::stdout(), "{text}")?;
        }
    }
    Ok(true)
}
