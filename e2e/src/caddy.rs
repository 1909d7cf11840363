//! caddy, what people take for a few hosts: it obtains and serves certificates by itself.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::Process;

/// A running caddy.
pub struct Caddy {
    _process: Process,
}

impl Caddy {
    /// Starts a program with this Caddyfile; its certificates and its CA stay in `home`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, home: &Path, caddyfile: &str) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("caddy").tempdir()?;
        let file = dir.path().join("Caddyfile");
        std::fs::write(&file, caddyfile)?;
        let folders = ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"];
        let arguments: Vec<String> = folders
            .iter()
            .map(|name| format!("{name}={}", home.display()))
            .chain([program.display().to_string()])
            .chain(["run", "--adapter", "caddyfile", "--config"].map(str::to_owned))
            .chain([file.display().to_string()])
            .collect();
        Ok(Self {
            _process: Process::start(Path::new("env"), &arguments, dir)?,
        })
    }
}

/// Returns the program: that of `PATH`, else the one that `e2e/tools` installed.
///
/// # Errors
/// When there is none.
pub fn binary() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools");
    std::env::split_paths(&path)
        .chain([own])
        .map(|folder| folder.join("caddy"))
        .find(|program| program.is_file())
        .context("no caddy: run e2e/tools install caddy")
}
