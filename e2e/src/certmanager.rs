//! cert-manager's real controllers. The kubelet runs the pods of its HTTP-01 solver.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::{Instant, sleep};

use crate::apiserver::{ApiServer, Definitions};
use crate::process::Process;

const LIMIT: Duration = Duration::from_secs(180);
/// The label of the objects that serve a challenge.
pub const SOLVER: &str = "acme.cert-manager.io/http01-solver=true";

/// Running controllers; killed on drop.
pub struct CertManager {
    _controllers: Process,
}

impl CertManager {
    /// Installs the CRDs, starts the controllers and returns when they run. They resolve names at
    /// `nameserver` for their self-check.
    pub async fn start(server: &ApiServer, nameserver: SocketAddr) -> Result<Self> {
        Self::run(server, nameserver, &[]).await
    }

    /// Starts controllers that trust these roots, like an image with the CA of the installation in
    /// its trust store.
    pub async fn start_trusting(
        server: &ApiServer,
        nameserver: SocketAddr,
        roots: &[u8],
    ) -> Result<Self> {
        Self::run(server, nameserver, roots).await
    }

    async fn run(server: &ApiServer, nameserver: SocketAddr, roots: &[u8]) -> Result<Self> {
        server.install(Definitions::CertManager).await?;
        let kubeconfig = server.kubeconfig("cert-manager", &["system:masters"])?;
        let dir = tempfile::Builder::new().prefix("cert-manager").tempdir()?;
        let mut arguments = Vec::new();
        if !roots.is_empty() {
            let bundle = dir.path().join("roots.pem");
            std::fs::write(&bundle, roots)?;
            arguments.push(format!("SSL_CERT_FILE={}", bundle.display()));
        }
        arguments.push(binary("cert-manager")?.display().to_string());
        arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
        arguments.push(format!("--nameservers={nameserver}"));
        let mut controllers = Process::start(Path::new("env"), &arguments, dir)?;
        let deadline = Instant::now() + LIMIT;
        while !controllers.log().contains("cert-manager runs") {
            ensure!(
                controllers.ended()?.is_none(),
                "cert-manager ended:\n{}",
                controllers.tail()
            );
            ensure!(
                Instant::now() < deadline,
                "cert-manager does not run:\n{}",
                controllers.tail()
            );
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Self {
            _controllers: controllers,
        })
    }
}

/// Returns the image name and program of the solver's pods, for a [`crate::kubelet::Kubelet`].
pub fn solver() -> Result<(&'static str, PathBuf)> {
    Ok(("acmesolver", binary("acmesolver")?))
}

fn binary(name: &str) -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../.tools")
        .join(name);
    ensure!(
        path.exists(),
        "no {name} at {}; run: e2e/tools install cert-manager",
        path.display()
    );
    Ok(path)
}
