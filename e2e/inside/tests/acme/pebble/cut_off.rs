//! A program that ends at any write, and a machine that loses its power.

use super::*;

/// A storage that fails the n-th write and every later one, as seen by a killed process.
struct Dying {
    inner: Arc<dyn Storage>,
    writes_left: AtomicUsize,
    after: bool,
}

impl Dying {
    fn dead() -> StorageError {
        StorageError::Io {
            doing: "writing",
            object: "test".to_owned(),
            why: std::io::Error::other("killed"),
        }
    }
}

#[async_trait]
impl Storage for Dying {
    async fn read(&self, key: &Key) -> Result<Option<Entry>, StorageError> {
        self.inner.read(key).await
    }
    async fn write(
        &self,
        key: &Key,
        bytes: &[u8],
        expect: &Expect,
    ) -> Result<Version, StorageError> {
        let left = self.writes_left.load(Ordering::SeqCst);
        if left == 0 {
            return Err(Self::dead());
        }
        self.writes_left.store(left - 1, Ordering::SeqCst);
        let version = if left > 1 || self.after {
            Some(self.inner.write(key, bytes, expect).await?)
        } else {
            None
        };
        if left == 1 {
            Err(Self::dead())
        } else {
            version.ok_or_else(Self::dead)
        }
    }
    async fn flush(&self, key: &Key) -> Result<(), StorageError> {
        if self.writes_left.load(Ordering::SeqCst) == 0 {
            Err(Self::dead())
        } else {
            self.inner.flush(key).await
        }
    }
    async fn remove(&self, key: &Key) -> Result<(), StorageError> {
        if self.writes_left.load(Ordering::SeqCst) == 0 {
            Err(Self::dead())
        } else {
            self.inner.remove(key).await
        }
    }
    async fn list(&self, kind: Kind) -> Result<Vec<Key>, StorageError> {
        self.inner.list(kind).await
    }
    async fn lock(&self, key: &Key) -> Result<Box<dyn Lock>, StorageError> {
        self.inner.lock(key).await
    }
}

#[test]
#[ignore = "needs Pebble"]
fn a_key_rollover_cut_off_anywhere_never_loses_the_account() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options {
            always_valid: true,
            ..Options::default()
        })
        .await?;
        let storage = rig.storage()?;
        let first = rig.issuer(rig.config()).await?;
        let url = first.account_url().await?;
        let mut thumbprints = vec![first.thumbprint()];
        drop(first);
        for (writes, after) in [(1, false), (1, true), (2, false), (2, true)] {
            let dying = Dying {
                inner: storage.clone(),
                writes_left: AtomicUsize::new(writes),
                after,
            };
            let issuer = AcmeIssuer::open(rig.config(), Arc::new(dying)).await?;
            ensure!(
                issuer.roll_over_key().await.is_err(),
                "it dies at write {writes}"
            );
            let restarted = rig.issuer(rig.config()).await?;
            ensure!(restarted.account_url().await? == url, "the same account");
            let names = format!("h{writes}{after}.example.com");
            restarted.issue(&request(&[&names])?).await?;
        }
        let rolled = rig.issuer(rig.config()).await?;
        rolled.roll_over_key().await?;
        ensure!(rolled.account_url().await? == url);
        thumbprints.push(rolled.thumbprint());
        ensure!(thumbprints[0] != thumbprints[1]);
        rolled.issue(&request(&["last.example.com"])?).await?;
        rolled.deactivate().await?;
        Ok(())
    })
}

/// A disk that loses unflushed writes at a power failure: orders are kept once `flush` returned,
/// other entries at once.
struct Volatile {
    cache: Directory,
    disk: Directory,
}

#[async_trait]
impl Storage for Volatile {
    async fn read(&self, key: &Key) -> Result<Option<Entry>, StorageError> {
        self.cache.read(key).await
    }
    async fn write(
        &self,
        key: &Key,
        bytes: &[u8],
        expect: &Expect,
    ) -> Result<Version, StorageError> {
        let version = self.cache.write(key, bytes, expect).await?;
        if key.kind() != Kind::Order {
            self.disk.write(key, bytes, &Expect::Anything).await?;
        }
        Ok(version)
    }
    async fn flush(&self, key: &Key) -> Result<(), StorageError> {
        if let Some(entry) = self.cache.read(key).await? {
            self.disk
                .write(key, &entry.bytes, &Expect::Anything)
                .await?;
        }
        Ok(())
    }
    async fn remove(&self, key: &Key) -> Result<(), StorageError> {
        self.cache.remove(key).await?;
        self.disk.remove(key).await
    }
    async fn list(&self, kind: Kind) -> Result<Vec<Key>, StorageError> {
        self.cache.list(kind).await
    }
    async fn lock(&self, key: &Key) -> Result<Box<dyn Lock>, StorageError> {
        self.cache.lock(key).await
    }
}

#[test]
#[ignore = "needs Pebble"]
fn a_machine_that_loses_its_power_gets_the_certificate_it_was_about_to_get() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options {
            always_valid: true,
            ..Options::default()
        })
        .await?;
        let mut issued = 0;
        for writes in 1..=4 {
            for after in [false, true] {
                let folder = |name: &str| rig.tmp.path().join(format!("{name}-{writes}-{after}"));
                let cache = Directory::open(folder("cache"))?;
                let disk = Directory::open(folder("disk"))?;
                AcmeIssuer::open(
                    rig.config(),
                    Arc::new(Volatile {
                        cache: cache.clone(),
                        disk: disk.clone(),
                    }),
                )
                .await?
                .account_url()
                .await?;
                let request = request(&[&format!("p{writes}{after}.example.com")])?;
                let inner = Arc::new(Volatile {
                    cache,
                    disk: disk.clone(),
                });
                let dying = Dying {
                    inner,
                    writes_left: AtomicUsize::new(writes),
                    after,
                };
                AcmeIssuer::open(rig.config(), Arc::new(dying))
                    .await?
                    .issue(&request)
                    .await
                    .err();
                // Only the flushed entries are left now.
                let certificate = AcmeIssuer::open(rig.config(), Arc::new(disk))
                    .await?
                    .issue(&request)
                    .await?;
                issued += 1;
                ensure!(certificate.names == request.names);
                ensure!(
                    rig.pebble.issued() == issued,
                    "write {writes} after {after}: {}",
                    rig.pebble.issued()
                );
            }
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs Pebble"]
fn an_order_cut_off_at_any_write_is_finished_after_a_restart_with_one_certificate() -> Result<()> {
    run(async {
        let rig = Rig::start(&Options {
            always_valid: true,
            ..Options::default()
        })
        .await?;
        let storage = rig.storage()?;
        rig.issuer(rig.config()).await?.account_url().await?;
        let mut issued = 0;
        for writes in 1..=4 {
            for after in [false, true] {
                let request = request(&[&format!("w{writes}{after}.example.com")])?;
                let dying = Dying {
                    inner: storage.clone(),
                    writes_left: AtomicUsize::new(writes),
                    after,
                };
                let died = AcmeIssuer::open(rig.config(), Arc::new(dying))
                    .await?
                    .issue(&request)
                    .await
                    .is_err();
                let certificate = rig.issuer(rig.config()).await?.issue(&request).await?;
                ensure!(certificate.names == request.names);
                issued += 1;
                ensure!(
                    rig.pebble.issued() == issued,
                    "write {writes} after {after} died {died}: {}",
                    rig.pebble.issued()
                );
            }
        }
        Ok(())
    })
}
