//! A headless Chromium on one page.

use std::net::SocketAddr;
use std::path::Path;

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
        Ok(Self {
            _process: start(&[(host, address)], &[url])?,
        })
    }
}

/// Starts a browser who finds these hosts at these addresses whatever the port, and accepts their
/// certificates.
pub(crate) fn start(hosts: &[(&str, SocketAddr)], more: &[&str]) -> Result<Process> {
    let program = Path::new("/usr/bin/chromium");
    installed(program)?;
    let dir = tempfile::Builder::new().prefix("chromium").tempdir()?;
    let profile = dir.path().join("profile").display().to_string();
    let rules = hosts
        .iter()
        .map(|(host, address)| format!("MAP {host} {address}"));
    let rules = rules.collect::<Vec<_>>().join(",");
    let usual = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--ignore-certificate-errors",
        "--no-proxy-server",
        &format!("--user-data-dir={profile}"),
        &format!("--host-resolver-rules={rules}"),
    ];
    let args = usual.iter().chain(more).map(|arg| (*arg).to_owned());
    Process::start(program, &args.collect::<Vec<_>>(), dir)
}

/// Ok if a program of the browser's packages is installed.
pub(crate) fn installed(program: &Path) -> Result<()> {
    ensure!(
        program.exists(),
        "{} is missing; install it with: e2e/tools install chromium",
        program.display()
    );
    Ok(())
}
