//! Garbage collection for issuers of deleted TenantGateways: removes their accounts, consumed rate
//! limits and unfinished orders after a time.

use std::collections::BTreeSet;
use std::time::Duration;

use acme::account::retire;
use acme::budget::Budget;
use acme::storage::{Key, Kind, Storage, read_json};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::debug;

use gatewright_core::model::ObjectName;

/// The interval of collections. The first is not at the start, since not every TenantGateway may be
/// known then.
const GC_INTERVAL: Duration = Duration::from_secs(3600);
/// The time for which an unused account is kept: the creation of accounts is limited, and a season
/// without a host should cost none.
const IDLE: SignedDuration = SignedDuration::from_hours(24 * 90);
/// The maximum number of entries of a kind in one collection; the others follow in the next hours.
const AT_ONCE: usize = 100;

/// The fields of a stored order that are read.
#[derive(Deserialize)]
struct Order {
    issuer: String,
    since: Timestamp,
}

/// Collects every hour until `stop`. `owners` returns the objects that have an issuer now.
pub(super) async fn run(
    storage: &dyn Storage,
    owners: impl Fn() -> BTreeSet<ObjectName>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            () = sleep(GC_INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        collect_garbage(storage, &owners(), Timestamp::now()).await;
    }
}

/// Returns the owner in an issuer's name, in the encoding of storage entries; `None` for an issuer
/// of the installation.
fn owner(name: &str) -> Option<&str> {
    // Letters, digits, dots and dashes are not encoded; `@` and `/` are.
    let (owner, _) = name.split_once("_40")?;
    owner.contains("_2f").then_some(owner)
}

/// Returns the entries to be examined in this hour, in rotation.
fn turn(mut keys: Vec<Key>, now: Timestamp) -> Vec<Key> {
    let hour = usize::try_from(now.as_second() / 3600).unwrap_or_default();
    let first = hour % keys.len().div_ceil(AT_ONCE).max(1) * AT_ONCE;
    keys.sort();
    keys.drain(..first);
    keys.truncate(AT_ONCE);
    keys
}

/// Collects once. Returns the number of removed entries.
pub(super) async fn collect_garbage(
    storage: &dyn Storage,
    owners: &BTreeSet<ObjectName>,
    now: Timestamp,
) -> usize {
    let present: BTreeSet<String> = owners
        .iter()
        .map(|owner| named(Kind::Account, &owner.to_string()))
        .collect();
    let listed = |kind| async move { storage.list(kind).await.unwrap_or_default() };
    let mut gone = 0;
    for key in turn(listed(Kind::Order).await, now) {
        let Ok(Some((order, _))) = read_json::<Order>(storage, &key).await else {
            continue;
        };
        let over =
            is_gone(&named(Kind::Account, &order.issuer), &present) && order.since + IDLE <= now;
        if over && storage.remove(&key).await.is_ok() {
            gone += 1;
        }
    }
    let idle = listed(Kind::Account)
        .await
        .into_iter()
        .filter(|key| is_gone(key.name(), &present));
    for key in turn(idle.collect(), now) {
        match retire(storage, &key, now, IDLE).await {
            Ok(went) => gone += usize::from(went),
            // The issuer is in use again, or the entry is examined again later.
            Err(error) => debug!("{key}: {error}"),
        }
    }
    // Consumed limits are kept until they no longer count, whether or not the issuer exists.
    let accounts: BTreeSet<String> = listed(Kind::Account)
        .await
        .iter()
        .map(|key| key.name().to_owned())
        .collect();
    let unused = |key: &Key| is_gone(key.name(), &present) && !accounts.contains(key.name());
    for key in turn(
        listed(Kind::Budget)
            .await
            .into_iter()
            .filter(unused)
            .collect(),
        now,
    ) {
        let Ok(Some((budget, _))) = read_json::<Budget>(storage, &key).await else {
            continue;
        };
        if budget.is_idle(now) && storage.remove(&key).await.is_ok() {
            gone += 1;
        }
    }
    gone
}

fn named(kind: Kind, name: &str) -> String {
    Key::new(kind, name).name().to_owned()
}

fn is_gone(name: &str, present: &BTreeSet<String>) -> bool {
    owner(name).is_some_and(|owner| !present.contains(owner))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use acme::Names;
    use acme::account::thumbprint;
    use acme::budget::{Exempt, Limits};
    use acme::storage::dir::Directory;
    use acme::storage::{Expect, write_json};
    use serde_json::json;

    use super::*;

    /// An empty storage, its directory, and a time.
    fn empty() -> (tempfile::TempDir, Arc<dyn Storage>, Timestamp) {
        let dir = tempfile::tempdir().expect("a directory");
        let storage = Arc::new(Directory::open(dir.path().join("acme")).expect("opened"));
        (
            dir,
            storage,
            "2026-11-22T00:00:00Z".parse().expect("a time"),
        )
    }

    #[tokio::test]
    async fn state_of_removed_tenants_is_collected_after_its_retention_and_limits_keep_their_meaning()
     {
        let (_dir, storage, start) = empty();
        let storage = &*storage;
        fn day(n: i64, start: &Timestamp) -> Timestamp {
            *start + SignedDuration::from_hours(24 * n)
        }
        let names = Names::parse(["a.example.org"]).expect("a name");
        let issuers = [
            "tenant-a/edge@ca.test",
            "tenant-b/edge@ca.test",
            "tenant-b/edge@other.test",
            "acme@ca.test",
        ];
        let mut prints = Vec::new();
        for issuer in issuers {
            prints.push(
                thumbprint(storage, issuer, "https://ca.test/dir")
                    .await
                    .expect("made"),
            );
            let mut budget = Budget::new(Limits::LETS_ENCRYPT);
            budget.spend(&names, Exempt::Nothing, day(94, &start));
            write_json(
                storage,
                &Key::new(Kind::Budget, issuer),
                &budget,
                &Expect::Absent,
            )
            .await
            .expect("written");
            let order = json!({"issuer": issuer, "since": start, "key": "s3cret"});
            write_json(
                storage,
                &Key::new(Kind::Order, issuer),
                &order,
                &Expect::Absent,
            )
            .await
            .expect("written");
        }
        async fn count(storage: &dyn Storage) -> [usize; 3] {
            let mut all = [0; 3];
            for (kind, count) in [Kind::Account, Kind::Budget, Kind::Order]
                .into_iter()
                .zip(&mut all)
            {
                *count = storage.list(kind).await.expect("listed").len();
            }
            all
        }
        let both =
            BTreeSet::from(["tenant-a", "tenant-b"].map(|space| ObjectName::new(space, "edge")));
        let one = BTreeSet::from([ObjectName::new("tenant-a", "edge")]);
        assert_eq!(collect_garbage(storage, &both, day(0, &start)).await, 0);
        assert_eq!(
            collect_garbage(storage, &one, day(1, &start)).await,
            0,
            "it is noted"
        );
        // The issuer is created again, and gets its account back.
        let again = thumbprint(storage, issuers[1], "https://ca.test/dir")
            .await
            .expect("there");
        assert_eq!(again, prints[1]);
        for n in [5, 60, 90] {
            let went = collect_garbage(storage, &one, day(n, &start)).await;
            assert_eq!(went, if n == 90 { 2 } else { 0 }, "day {n}");
            assert_eq!(
                count(storage).await,
                [4, 4, if n == 90 { 2 } else { 4 }],
                "day {n}"
            );
        }
        // The time of that account began with the second deletion of the issuer.
        assert_eq!(
            collect_garbage(storage, &one, day(91, &start)).await,
            1,
            "the account goes"
        );
        assert_eq!(count(storage).await, [3, 4, 2], "one is left less");
        assert_eq!(
            collect_garbage(storage, &one, day(95, &start)).await,
            1,
            "what was spent counts still"
        );
        assert_eq!(
            count(storage).await,
            [2, 4, 2],
            "what was spent counts still"
        );
        assert_eq!(
            collect_garbage(storage, &one, day(120, &start)).await,
            2,
            "the limits go at last"
        );
        assert_eq!(count(storage).await, [2, 2, 2], "no limit is left");
        let rest = thumbprint(storage, issuers[0], "https://ca.test/dir")
            .await
            .expect("there");
        assert_eq!(rest, prints[0]);
    }

    #[tokio::test]
    async fn many_that_went_go_as_soon_as_few() {
        let (_dir, storage, start) = empty();
        let storage = &*storage;
        for number in 0..AT_ONCE + 20 {
            let issuer = format!("tenant-{number}/edge@ca.test");
            thumbprint(storage, &issuer, "https://ca.test/dir")
                .await
                .expect("made");
        }
        for hour in [0, 1, 24 * 91, 24 * 91 + 1] {
            collect_garbage(
                storage,
                &BTreeSet::new(),
                start + SignedDuration::from_hours(hour),
            )
            .await;
        }
        assert_eq!(storage.list(Kind::Account).await.expect("listed"), []);
    }

    #[tokio::test]
    async fn orders_that_went_are_found_behind_many_that_are_on_their_way() {
        let (_dir, storage, start) = empty();
        let storage = &*storage;
        for number in 0..2 * AT_ONCE {
            let issuer = if number % 40 == 39 {
                "tenant-z/edge@ca.test"
            } else {
                "tenant-a/edge@ca.test"
            };
            let order = json!({"issuer": issuer, "since": start});
            let key = Key::new(Kind::Order, &format!("{number:03}"));
            write_json(storage, &key, &order, &Expect::Absent)
                .await
                .expect("written");
        }
        let owners = BTreeSet::from([ObjectName::new("tenant-a", "edge")]);
        let mut gone = 0;
        for hour in 24 * 91..24 * 91 + 2 {
            gone +=
                collect_garbage(storage, &owners, start + SignedDuration::from_hours(hour)).await;
        }
        assert_eq!(gone, 5);
    }
}
