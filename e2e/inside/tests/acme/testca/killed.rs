//! A program that is killed at every write.

use super::*;

/// A storage that halts at a write: it prints a line and waits to be killed.
struct Halting {
    inner: Directory,
    left: AtomicUsize,
    after: bool,
}

impl Halting {
    #[allow(clippy::print_stdout, reason = "the parent process reads it")]
    async fn halt() -> ! {
        println!("HALTED");
        std::future::pending().await
    }
}

#[async_trait]
impl Storage for Halting {
    async fn read(&self, key: &Key) -> Result<Option<Entry>, StorageError> {
        self.inner.read(key).await
    }
    async fn write(
        &self,
        key: &Key,
        bytes: &[u8],
        expect: &Expect,
    ) -> Result<Version, StorageError> {
        let last = self.left.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && !self.after {
            Self::halt().await;
        }
        let version = self.inner.write(key, bytes, expect).await?;
        if last {
            Self::halt().await;
        }
        Ok(version)
    }
    async fn remove(&self, key: &Key) -> Result<(), StorageError> {
        let last = self.left.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && !self.after {
            Self::halt().await;
        }
        self.inner.remove(key).await?;
        if last {
            Self::halt().await;
        }
        Ok(())
    }
    async fn flush(&self, key: &Key) -> Result<(), StorageError> {
        self.inner.flush(key).await
    }
    async fn list(&self, kind: Kind) -> Result<Vec<Key>, StorageError> {
        self.inner.list(kind).await
    }
    async fn lock(&self, key: &Key) -> Result<Box<dyn Lock>, StorageError> {
        self.inner.lock(key).await
    }
}

const CHILD: &str = "GATEWRIGHT_TEST_CHILD";

/// No test by itself: the process that is killed. Its parent sets the write at which it halts.
#[test]
fn child() -> Result<()> {
    let Ok(orders) = std::env::var(CHILD) else {
        return Ok(());
    };
    let mut orders = orders.split('|');
    let mut next = || orders.next().context("four fields");
    let directory = next()?.to_owned();
    let dir = PathBuf::from(next()?);
    let left = next()?.parse()?;
    let after = next()? == "after";
    run(async move {
        let inner = Directory::open(dir.join("acme"))?;
        let storage: Arc<dyn Storage> = Arc::new(Halting {
            inner,
            left: AtomicUsize::new(left),
            after,
        });
        let dns = Arc::new(FileDns(dir.join("dns")));
        let mut config = config(&directory);
        config.solvers = Solvers {
            dns: Some(DnsSolver {
                provider: dns.clone(),
                view: dns,
                ttl: 60,
                propagation_limit: Duration::from_secs(1),
                account_label: false,
            }),
            ..Solvers::default()
        };
        let issuer: Arc<dyn Issuer> = Arc::new(AcmeIssuer::open(config, storage.clone()).await?);
        let keeper = Keeper::open(storage, [issuer], 1).await?;
        let wanted = [Wanted {
            names: Names::parse(["example.com", "*.example.com"])?,
            ..want("example.com")?
        }];
        let pass = keeper.pass(&wanted, Timestamp::now()).await;
        ensure!(pass.failed.is_empty(), "{:?}", pass.failed);
        Ok(())
    })
}

/// Runs the child; returns true if it halted and was killed.
fn run_child(directory: &str, dir: &Path, left: usize, after: bool) -> Result<bool> {
    let side = if after { "after" } else { "before" };
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", "testca::killed::child", "--nocapture"])
        .env(
            CHILD,
            format!("{directory}|{}|{left}|{side}", dir.display()),
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let out = BufReader::new(child.stdout.take().context("piped")?);
    let halted = out
        .lines()
        .map_while(Result::ok)
        .any(|l| l.contains("HALTED"));
    if halted {
        // SIGKILL: no destructor runs.
        child.kill()?;
        child.wait()?;
        return Ok(true);
    }
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "the child failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(false)
}

#[test]
fn killed_at_every_write_there_is_one_order_one_certificate_no_lost_key_and_no_orphan_record()
-> Result<()> {
    run(async {
        let mut steps = 0;
        for left in 1.. {
            let mut halted = false;
            for after in [false, true] {
                let ca = TestCa::start().await?;
                let tmp = tempfile::tempdir()?;
                std::fs::create_dir(tmp.path().join("dns"))?;
                let directory = ca.directory();
                let dir = tmp.path().to_owned();
                halted |= tokio::task::spawn_blocking(move || -> Result<bool> {
                    let halted = run_child(&directory, &dir, left, after)?;
                    ensure!(
                        !run_child(&directory, &dir, 0, after)?,
                        "the second run has nobody to halt it"
                    );
                    Ok(halted)
                })
                .await??;
                let at = format!("write {left} after={after}");
                let counts = ca.counts();
                ensure!(counts.accounts == 1, "{at}: {counts:?}");
                ensure!(counts.orders.values().eq([&1]), "{at}: {counts:?}");
                ensure!(counts.certificates.values().eq([&1]), "{at}: {counts:?}");
                ensure!(
                    std::fs::read_dir(tmp.path().join("dns"))?.count() == 0,
                    "{at}: a record is left"
                );
                let storage = Directory::open(tmp.path().join("acme"))?;
                ensure!(
                    storage.list(Kind::Order).await?.is_empty(),
                    "{at}: an order is left"
                );
                let keeper = Keeper::open(Arc::new(storage), [], 1).await?;
                let held = keeper.certificates();
                ensure!(held.len() == 1, "{at}: {} certificates", held.len());
                let chain = acme::certificate::chain_of(&held[0].certificate.chain_pem)?;
                ensure!(
                    held[0].certificate.key_pem.belongs_to(&chain[0])?,
                    "{at}: another key"
                );
            }
            if !halted {
                break;
            }
            steps = left;
        }
        ensure!(steps >= 8, "only {steps} steps are written down");
        Ok(())
    })
}
