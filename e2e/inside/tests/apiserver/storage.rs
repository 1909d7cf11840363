//! The storage of certificates on a real API server: preconditions hold between two writers, and
//! only the lease holder may write.

use std::time::Duration;

use acme::Storage;
use acme::storage::{Expect, Key, Kind, StorageError};
use anyhow::{Context, Result};
use e2e::cluster::{ACCOUNT, Cluster, NAMESPACE};
use gatewright_kubernetes::lease::Term;
use gatewright_kubernetes::{Fence, ObjectStorage, connect};
use tokio::sync::watch;
use tokio::time::Instant;

const KINDS: [Kind; 6] = [
    Kind::Account,
    Kind::Order,
    Kind::Budget,
    Kind::Attempts,
    Kind::Renewal,
    Kind::Authority,
];

fn is_conflict<T>(outcome: &Result<T, StorageError>) -> bool {
    matches!(outcome, Err(StorageError::Conflict { .. }))
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn a_write_over_what_another_wrote_is_refused_and_so_is_one_of_who_lost_the_lease()
-> Result<()> {
    let cluster = Cluster::start().await?;
    let leading = || watch::channel::<Term>(Some(Instant::now() + Duration::from_secs(3600)));
    let (_hold, term) = leading();
    let fence = Fence::new(term.clone(), Duration::from_secs(15));
    let client = connect(Some(&cluster.server.kubeconfig(ACCOUNT, &[])?), &fence).await?;
    let (lose, for_other) = leading();
    let one = ObjectStorage::open(client.clone(), NAMESPACE, term.clone()).await?;
    let two = ObjectStorage::open(client.clone(), NAMESPACE, for_other).await?;
    for kind in KINDS {
        let key = Key::new(kind, "tenant-a/edge@ca.example:14000");
        let first = one.write(&key, br#"{"n":1}"#, &Expect::Absent).await?;
        // The other read before that: regardless of its precondition, it does not overwrite the
        // entry, once.
        assert!(
            is_conflict(&two.write(&key, br#"{"n":2}"#, &Expect::Anything).await),
            "{kind:?}"
        );
        let read = two.read(&key).await?.context("it is there")?;
        assert_eq!(
            read.bytes.as_slice(),
            br#"{"n":1}"#.as_slice(),
            "the bytes are those that were written"
        );
        assert_eq!(read.version, first, "the version is that of the write");
        let second = two
            .write(&key, br#"{"n":2}"#, &Expect::Version(first.clone()))
            .await?;
        assert!(is_conflict(
            &one.write(&key, br#"{"n":3}"#, &Expect::Anything).await
        ));
        assert!(is_conflict(
            &one.write(&key, br#"{"n":3}"#, &Expect::Version(first))
                .await
        ));
        assert!(is_conflict(
            &one.write(&key, br#"{"n":3}"#, &Expect::Absent).await
        ));
        one.write(&key, br#"{"n":3}"#, &Expect::Version(second))
            .await?;
        assert!(
            is_conflict(&two.remove(&key).await),
            "what it does not know it does not remove"
        );
        let again = ObjectStorage::open(client.clone(), NAMESPACE, term.clone()).await?;
        assert_eq!(again.list(kind).await?, std::slice::from_ref(&key));
        assert_eq!(
            again
                .read(&key)
                .await?
                .context("it is there")?
                .bytes
                .as_slice(),
            br#"{"n":3}"#
        );
    }
    lose.send_replace(None);
    for kind in KINDS {
        let key = Key::new(kind, "tenant-a/edge@ca.example:14000");
        for outcome in [
            two.write(&key, b"{}", &Expect::Anything).await.map(drop),
            two.remove(&key).await,
        ] {
            let text = outcome.expect_err("it lost the lease").to_string();
            assert!(text.contains("the lease went to another replica"), "{text}");
        }
        let last = ObjectStorage::open(client.clone(), NAMESPACE, term.clone()).await?;
        last.remove(&key).await?;
        last.remove(&key).await?;
        assert!(last.read(&key).await?.is_none());
    }
    // A lock has one holder at a time.
    let key = Key::new(Kind::Order, "x");
    let held = one.lock(&key).await?;
    assert!(
        tokio::time::timeout(Duration::from_millis(50), one.lock(&key))
            .await
            .is_err()
    );
    drop(held);
    one.lock(&key).await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
