//! nginx, from its Debian package, with the configuration of a test.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::process::Process;

const START_LIMIT: Duration = Duration::from_secs(60);

/// A running nginx; killed on drop.
#[derive(Debug)]
pub struct Nginx {
    _process: Process,
}

impl Nginx {
    /// Starts it with files in a directory of its own, of which `nginx.conf` is the configuration,
    /// with paths relative to it. Waits until it listens on these addresses.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn start(files: &[(&str, &str)], addresses: &[SocketAddr]) -> Result<Self> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/nginx");
        ensure!(
            program.exists(),
            "no nginx at {}; run: e2e/tools install nginx",
            program.display()
        );
        let dir = TempDir::with_prefix("nginx").context("making a directory")?;
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text)?;
        }
        let prefix = dir.path().display().to_string();
        let arguments = ["-e", "stderr", "-p", &prefix, "-c", "nginx.conf"].map(str::to_owned);
        let mut process = Process::start(&program, &arguments, dir)?;
        for address in addresses {
            process.accepts("nginx", *address, START_LIMIT).await?;
        }
        Ok(Self { _process: process })
    }
}
