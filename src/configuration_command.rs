//! `gatewright config`: prints, checks and explains the configuration.

use std::io::{self, Write};
use std::sync::Arc;

use acme::Storage;
use acme::storage::dir::Directory;
use anyhow::{Context, Result, bail};
use gatewright_control::certificates;

use crate::cli::ConfigVerb;
use crate::configuration::{self, Configuration};

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
            let faults = runtime()?.block_on(faults(&configuration))?;
            if !faults.is_empty() {
                bail!("{}", faults.join("\n"));
            }
        }
        ConfigVerb::Explain { field } => {
            let text = configuration::explain(field)?;
            io::stdout().write_all(text.as_bytes())?;
        }
        ConfigVerb::Schema => {
            let text = serde_json::to_string_pretty(&configuration::schema())?;
            writeln!(io::stdout(), "{text}")?;
        }
    }
    Ok(true)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.context("starting the runtime")
}

/// Returns what keeps issuers from issuing certificates, each fault with its field, as far as it
/// shows without a request: each is opened as at a start, beside a storage that is thrown away.
///
/// # Errors
/// When it cannot be found out.
pub async fn faults(configuration: &Configuration) -> Result<Vec<String>> {
    let issuers = &configuration.issuers;
    let dir = tempfile::tempdir().context("a directory for the check")?;
    let storage: Arc<dyn Storage> = Arc::new(Directory::open(dir.path().join("storage"))?);
    let opened = certificates::faults(issuers, &storage).await;
    let mut faults: Vec<String> = opened
        .iter()
        .map(|(name, fault)| format!("issuers.{name}: {fault}"))
        .collect();
    faults.extend(unagreed(configuration));
    Ok(faults)
}

/// Returns the issuers whose CA will create no account.
fn unagreed(configuration: &Configuration) -> impl Iterator<Item = String> {
    configuration.issuers.iter().filter_map(|(name, issuer)| {
        let why = issuer.unagreed()?;
        Some(format!("issuers.{name}.agreeToTerms: {why}"))
    })
}
