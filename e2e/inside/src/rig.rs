//! The ACME engine and its keeper with the test CA.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use acme::client::Roots;
use acme::engine::{AcmeConfig, AcmeIssuer};
use acme::keeper::Keeper;
use acme::storage::dir::Directory;
use acme::{CertificateId, Issuer, Names, Storage, Wanted};
use anyhow::{Context, Result};

use e2e::testca::{LIMIT, TestCa};

/// Runs a test with a time limit.
pub fn run<F: Future<Output = Result<()>>>(test: F) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        tokio::time::timeout(LIMIT * 5, test)
            .await
            .context("no end in time")?
    })
}

/// Returns the settings of an issuer called `ca`.
pub fn config(directory: &str) -> AcmeConfig {
    let mut config = AcmeConfig::new("ca", directory);
    config.roots = Roots::Pem(String::new());
    config.attempt_timeout = Duration::from_secs(120);
    config
}

/// A tenant's wanted certificate for a host.
pub fn wanted_of_one(tenant: &str, host: &str) -> Result<Wanted> {
    let names = Names::parse([host])?;
    Ok(Wanted {
        id: CertificateId::of(tenant, &names),
        tenant: tenant.to_owned(),
        issuer: "ca".to_owned(),
        names,
        validity: None,
        may_share: true,
        renew_now: false,
        hold: None,
    })
}

/// A wanted certificate of the tenant `t` for a host.
pub fn want(host: &str) -> Result<Wanted> {
    wanted_of_one("t", host)
}

/// A test CA, and a directory for the storage.
pub struct Rig {
    /// The CA.
    pub ca: TestCa,
    tmp: tempfile::TempDir,
}

impl Rig {
    /// Starts the CA.
    pub async fn start() -> Result<Self> {
        Ok(Self {
            ca: TestCa::start().await?,
            tmp: tempfile::tempdir()?,
        })
    }

    /// Returns the directory of the storage.
    pub fn dir(&self) -> &Path {
        self.tmp.path()
    }

    /// Opens the storage.
    pub fn storage(&self) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(Directory::open(self.tmp.path().join("acme"))?))
    }

    /// Opens the issuer.
    pub async fn issuer(&self) -> Result<AcmeIssuer> {
        Ok(AcmeIssuer::open(config(&self.ca.directory()), self.storage()?).await?)
    }

    /// Opens a keeper with an issuer of these settings.
    pub async fn keeper_with(&self, config: AcmeConfig) -> Result<Arc<Keeper>> {
        let storage = self.storage()?;
        let issuer: Arc<dyn Issuer> = Arc::new(AcmeIssuer::open(config, storage.clone()).await?);
        Ok(Keeper::open(storage, [issuer], 8).await?)
    }

    /// Opens a keeper with the default issuer.
    pub async fn keeper(&self) -> Result<Arc<Keeper>> {
        self.keeper_with(config(&self.ca.directory())).await
    }

    /// Returns the number of orders at the CA.
    pub fn orders(&self) -> usize {
        self.ca.counts().orders.values().sum()
    }

    /// Returns the number of certificates that the CA issued.
    pub fn certificates(&self) -> usize {
        self.ca.counts().certificates.values().sum()
    }
}
