//! A real container registry: Distribution, which Docker Hub runs as well, from its Debian package.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::port::free_port;
use crate::process::Process;

const START_LIMIT: Duration = Duration::from_secs(60);

/// A running registry; killed on drop, with its images.
#[derive(Debug)]
pub struct Registry {
    process: Process,
    address: SocketAddr,
}

impl Registry {
    /// Starts it without TLS on a free port of 127.0.0.1, and waits until it answers.
    pub async fn start() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("registry")
            .tempdir()
            .context("making a directory")?;
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let configuration = dir.path().join("config.yml");
        let storage = dir.path().join("storage");
        std::fs::write(
            &configuration,
            format!(
                "version: 0.1\nstorage: {{filesystem: {{rootdirectory: '{}'}}}}\nhttp: {{addr: '{address}'}}\n",
                storage.display()
            ),
        )?;
        let arguments = ["serve".to_owned(), configuration.display().to_string()];
        let mut process = Process::start(&tool("docker-registry")?, &arguments, dir)?;
        process
            .accepts("the registry", address, START_LIMIT)
            .await?;
        Ok(Self { process, address })
    }

    /// Returns HOST:PORT, the prefix of the names of its images.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Pushes an archive with an OCI layout, unchanged and by its digest.
    pub fn push(&self, archive: &Path, name: &str) -> Result<()> {
        let out = Command::new(tool("skopeo")?)
            .args([
                "--insecure-policy",
                "copy",
                "--quiet",
                "--all",
                "--preserve-digests",
                "--dest-tls-verify=false",
            ])
            .arg(format!("oci-archive:{}", archive.display()))
            .arg(format!("docker://{}/{name}", self.address))
            .output()?;
        ensure!(
            out.status.success(),
            "skopeo: {}\n{}",
            String::from_utf8_lossy(&out.stderr),
            self.process.tail()
        );
        Ok(())
    }
}

fn tool(name: &str) -> Result<std::path::PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../.tools")
        .join(name);
    ensure!(
        path.exists(),
        "no {name} at {}; run: e2e/tools install registry",
        path.display()
    );
    Ok(path)
}
