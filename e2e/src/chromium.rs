//! A headless Chromium on one page.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::process::Process;

/// A running browser; killed on drop.
#[derive(Debug)]
pub struct Chromium {
    _process: Process,
}

impl Chromium {
    /// Opens a URL, whose host is at this address whatever its port, and whose certificate is
    /// accepted. Call it on the test's own thread: the browser is killed with that thread.
    ///
    /// # Errors
    /// When Chromium is missing or cannot be started.
    pub fn open(url: &str, host: &str, address: SocketAddr) -> Result<Self> {
        let program = PathBuf::from("/usr/bin/chromium");
        ensure!(
            program.exists(),
            "{} is missing; install it with: e2e/tools install chromium",
            program.display()
        );
        let dir = tempfile::Builder::new().prefix("chromium").tempdir()?;
        let profile = dir.path().join("profile").display().to_string();
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--ignore-certificate-errors",
            "--no-proxy-server",
            &format!("--user-data-dir={profile}"),
            &format!("--host-resolver-rules=MAP {host} {address}"),
            url,
        ];
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        Ok(Self {
            _process: Process::start(&program, &args, dir)?,
        })
    }
}
