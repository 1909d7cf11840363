//! What a server has at its start. The roles of Kubernetes and definitions of kinds are written
//! once, and the data of etcd is kept: a server that begins with it takes a fraction of the
//! processor time of one that gets them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use super::{ApiServer, binary};
use crate::deploy;
use crate::hex::hex;

/// A set of definitions of kinds.
#[derive(Clone, Copy, Debug)]
pub enum Definitions {
    /// The Gateway API of the release that this project follows: the standard channel.
    GatewayApi,
    /// The same: the experimental channel.
    ExperimentalGatewayApi,
    /// Version 1.4 of it: the experimental channel.
    OlderGatewayApi,
    /// Our own kinds, TenantGateway among them.
    Ours,
    /// The kinds of cert-manager.
    CertManager,
}

impl Definitions {
    /// Their folder.
    ///
    /// # Errors
    /// When it was not installed.
    pub fn folder(self) -> Result<PathBuf> {
        let (path, tool) = match self {
            Self::GatewayApi => (".tools/gateway-api/config/crd/standard", "gateway-api"),
            Self::ExperimentalGatewayApi => {
                (".tools/gateway-api/config/crd/experimental", "gateway-api")
            }
            Self::OlderGatewayApi => (
                ".tools/gateway-api-older/config/crd/experimental",
                "gateway-api",
            ),
            Self::Ours => return Ok(deploy::folder().join("crds")),
            Self::CertManager => (".tools/cert-manager-crds", "cert-manager-crds"),
        };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        ensure!(
            folder.exists(),
            "no definitions at {}; run: e2e/tools install {tool}",
            folder.display()
        );
        Ok(folder)
    }
}

/// The folder of the data of a server with these definitions. It is made if there is none, while
/// other tests that want the same wait.
pub(super) async fn data(definitions: &[Definitions]) -> Result<PathBuf> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/seeds");
    fs::create_dir_all(&seeds)?;
    let seed = seeds.join(key(definitions)?);
    let lock = File::create(seed.with_extension("lock"))?;
    lock.lock()
        .with_context(|| format!("waiting for {}", seed.display()))?;
    if !seed.exists() {
        let mut server = ApiServer::start_from(None, &[]).await?;
        for one in definitions {
            server.install_crds(&one.folder()?).await?;
        }
        server.kill();
        server.etcd.stop();
        let made = seed.with_extension("new");
        let _left_by_an_aborted_test = fs::remove_dir_all(&made);
        copy(&server.data(), &made)?;
        fs::rename(&made, &seed)?;
    }
    Ok(seed)
}

/// Copies the data of an etcd that does not run. Its log has a preallocated end.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = std::process::Command::new("cp")
        .args(["-a", "--sparse=always"])
        .args([from, to])
        .status()?;
    ensure!(copied.success(), "copying {} failed", from.display());
    Ok(())
}

/// A name for the data: another for each program and each content of the definitions.
fn key(definitions: &[Definitions]) -> Result<String> {
    let mut digest = Sha256::new();
    for name in ["kube-apiserver", "etcd"] {
        let program = fs::canonicalize(binary(name)?)?;
        let about = fs::metadata(&program)?;
        digest.update(format!(
            "{program:?} {} {:?}",
            about.len(),
            about.modified()?
        ));
    }
    for one in definitions {
        for file in super::manifests::yaml_files(&one.folder()?)? {
            digest.update(fs::read(&file)?);
        }
    }
    Ok(hex(&digest.finalize()[..8]))
}
