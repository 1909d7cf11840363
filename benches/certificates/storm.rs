//! Renewal of all certificates of a tenant at once, as after a mass revocation, while another
//! tenant orders its first.
//!
//! The CA is the test CA, in this process: with Pebble 2.10 such a run did not end. The reason is
//! not known for certain. Its source suggests a deadlock: its handler of authorizations accesses
//! the store while it holds the lock of the authorization (`wfe.go`, `Authz`), and a new order
//! waits for such locks while it holds that of the store (`memorystore.go`,
//! `FindValidAuthorization`). That was not reproduced in isolation. Each new order also scans all
//! authorizations, and a look-up of a renewal window all certificates, so that Pebble becomes
//! slower with every order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acme::Wanted;
use acme::engine::{AcmeConfig, AcmeIssuer};
use acme::issuer::Issuer;
use acme::keeper::Keeper;
use anyhow::{Result, ensure};
use e2e_inside::rig::{Rig, config, wanted_of_one};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep;

const CERTIFICATES: usize = 5000;
/// Most pending orders of the program.
const AT_ONCE: usize = 32;
const LIMIT: Duration = Duration::from_secs(600);

/// Runs the storm, with the given number of certificates or the default.
pub(crate) async fn storm(certificates: Option<usize>) -> Result<()> {
    let certificates = certificates.unwrap_or(CERTIFICATES);
    let rig = Rig::start().await?;
    let storage = rig.storage()?;
    let config = AcmeConfig {
        max_concurrent: 16,
        ..config(&rig.ca.directory())
    };
    let issuer: Arc<dyn Issuer> = Arc::new(AcmeIssuer::open(config, storage.clone()).await?);
    let keeper = Keeper::open(storage, [issuer], AT_ONCE).await?;
    let wanted = (0..certificates)
        .map(|i| {
            Ok(Wanted {
                may_share: false,
                ..wanted_of_one("t", &format!("h{i}.example{i}.com"))?
            })
        })
        .collect::<Result<Vec<Wanted>>>()?;
    ensure!(
        keeper.pass(&wanted, Timestamp::now()).await.issued.len() == certificates,
        "not all were issued"
    );
    keeper.want(
        wanted
            .iter()
            .map(|want| (want.id.clone(), Some(want.clone()))),
    );
    let (stopper, stop) = watch::channel(false);
    let working = keeper.clone();
    let task =
        tokio::spawn(async move { working.run(watch::channel(Arc::default()).0, stop).await });
    let before = serials(&keeper);
    fn renewed(keeper: &Arc<Keeper>, before: &BTreeSet<String>) -> usize {
        serials(keeper).difference(before).count()
    }
    let start = Instant::now();
    let work = super::processor_time()?;
    wanted.iter().for_each(|want| keeper.renew(&want.id));
    until(
        start,
        || renewed(&keeper, &before) >= certificates / 4,
        Duration::from_millis(50),
    )
    .await?;
    let other = wanted_of_one("other", "www.example.org")?;
    let asked = Instant::now();
    keeper.want([(other.id.clone(), Some(other.clone()))]);
    until(
        start,
        || keeper.held_as(&other.id).is_some(),
        Duration::from_millis(1),
    )
    .await?;
    let waited = asked.elapsed();
    until(
        start,
        || renewed(&keeper, &before) > certificates,
        Duration::from_millis(50),
    )
    .await?;
    let (took, work) = (start.elapsed(), super::processor_time()? - work);
    println!(
        "{certificates} renewals at once: {:.1} s, {:.1}/s, {:.2} ms of processor each, the CA's included; another tenant's \
         first certificate meanwhile after {:.2} s",
        took.as_secs_f64(),
        certificates as f64 / took.as_secs_f64(),
        work.as_secs_f64() * 1e3 / certificates as f64,
        waited.as_secs_f64(),
    );
    stopper.send_replace(true);
    Ok(task.await?)
}

fn serials(keeper: &Keeper) -> BTreeSet<String> {
    keeper
        .certificates()
        .iter()
        .map(|stored| stored.certificate.serial.clone())
        .collect()
}

async fn until(start: Instant, is_so: impl Fn() -> bool, every: Duration) -> Result<()> {
    while !is_so() {
        ensure!(start.elapsed() < LIMIT, "no end within {LIMIT:?}");
        sleep(every).await;
    }
    Ok(())
}
