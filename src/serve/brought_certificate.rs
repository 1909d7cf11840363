//! A certificate that the command line brings by the paths of its files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use gatewright_core::inputs::parse_certificate;
use gatewright_core::model::Hostname;
use serde_json::json;

/// The files of a certificate, and the hostnames that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BroughtCertificate {
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
    /// Its names, of which some are wildcards.
    pub(super) names: Vec<Hostname>,
}

impl BroughtCertificate {
    /// Reads the files of `--cert` and `--key`.
    ///
    /// # Errors
    /// When they cannot be read or served, or the certificate is for none of the hostnames.
    pub(super) fn read(chain: &Path, key: &Path, hosts: &[&Hostname]) -> Result<Self> {
        let chain_text = fs::read(chain).with_context(|| format!("--cert {}", chain.display()))?;
        let key_text = fs::read(key).with_context(|| format!("--key {}", key.display()))?;
        let certificate = match parse_certificate(&chain_text, &key_text) {
            Ok(certificate) => certificate,
            Err(why) => bail!("--cert {}, --key {}: {why}", chain.display(), key.display()),
        };
        let brought = Self {
            chain: absolute(chain)?,
            key: absolute(key)?,
            names: certificate.names,
        };
        let names: Vec<&str> = brought.names.iter().map(Hostname::as_str).collect();
        ensure!(
            hosts.iter().any(|host| brought.is_for(host)),
            "--cert {}: it is for {}, and not for a hostname that is to be served",
            chain.display(),
            names.join(", ")
        );
        Ok(brought)
    }

    /// True if it has a hostname.
    pub(super) fn is_for(&self, host: &Hostname) -> bool {
        let wildcard = host.parent();
        self.names
            .iter()
            .any(|name| name == host || Some(name) == wildcard.as_ref())
    }

    /// The value of the annotation that names the files.
    pub(super) fn files(&self) -> String {
        format!(
            "tls.crt={},tls.key={}",
            self.chain.display(),
            self.key.display()
        )
    }

    /// The directories that the program may read them from, also where links lead, as YAML.
    pub(super) fn directories(&self) -> String {
        let files = [&self.chain, &self.key].into_iter();
        let mut directories: Vec<PathBuf> = files
            .flat_map(|file| [Some(file.clone()), file.canonicalize().ok()])
            .filter_map(|file| Some(file?.parent()?.to_owned()))
            .collect();
        directories.sort();
        directories.dedup();
        let directories = directories
            .iter()
            .map(|directory| json!({"directory": directory}));
        serde_json::Value::from_iter(directories).to_string()
    }
}

/// The path from the root, as a manifest can name it.
fn absolute(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let text = absolute.to_str().unwrap_or_default();
    ensure!(
        !text.is_empty() && !text.contains(','),
        "{}: a path with a comma, or that is not UTF-8, cannot be named",
        path.display()
    );
    let parts = absolute.components();
    if parts
        .clone()
        .any(|part| part == std::path::Component::ParentDir)
    {
        // Links are followed by the program, and ".." is not.
        let directory = absolute.parent().context("a path without a directory")?;
        let name = absolute.file_name().context("a path without a name")?;
        return Ok(directory.canonicalize()?.join(name));
    }
    Ok(parts.collect())
}
