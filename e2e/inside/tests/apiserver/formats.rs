//! Objects of a newer format, as a later version would leave them: they are not used and not
//! changed, and the message names them.

use std::time::Duration;

use acme::Storage;
use acme::storage::{Expect, Key, Kind, StorageError};
use anyhow::{Context, Result, ensure};
use e2e::cluster::{ACCOUNT, Cluster, NAMESPACE};
use gatewright_kubernetes::lease::Term;
use gatewright_kubernetes::{Fence, ObjectStorage, connect};
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, Patch};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

const LIMIT: Duration = Duration::from_secs(120);
const FORMAT: &str = "gatewright.io/format";

/// Sets the format of an object, and returns the object.
async fn set_format(
    cluster: &Cluster,
    kind: &str,
    name: &str,
    format: &str,
) -> Result<DynamicObject> {
    let api = cluster.server.api("v1", kind, NAMESPACE).await?;
    let patch = json!({"metadata": {"annotations": {FORMAT: format}}});
    Ok(api
        .patch(name, &Default::default(), &Patch::Merge(patch))
        .await?)
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn entries_of_a_newer_version_are_left_as_they_are() -> Result<()> {
    let cluster = Cluster::start().await?;
    let (_hold, term) = watch::channel::<Term>(Some(Instant::now() + Duration::from_secs(3600)));
    let fence = Fence::new(term.clone(), Duration::from_secs(15));
    let client = connect(Some(&cluster.server.kubeconfig(ACCOUNT, &[])?), &fence).await?;
    let storage = ObjectStorage::open(client.clone(), NAMESPACE, term.clone()).await?;
    for (kind, shape) in [(Kind::Authority, "Secret"), (Kind::Budget, "ConfigMap")] {
        let key = Key::new(kind, "example.org");
        storage.write(&key, br#"{"n":1}"#, &Expect::Absent).await?;
        let api = cluster.server.api("v1", shape, NAMESPACE).await?;
        let all = api
            .list(&ListParams::default().labels("gatewright.io/keeps"))
            .await?
            .items;
        let name = all.first().context("the entry's object")?.name_any();
        ensure!(
            all.len() == 1
                && all[0]
                    .annotations()
                    .get(FORMAT)
                    .is_some_and(|format| format == "1"),
            "{all:?}"
        );

        let newer = set_format(&cluster, shape, &name, "2").await?;
        let refused = ObjectStorage::open(client.clone(), NAMESPACE, term.clone())
            .await
            .err()
            .context("it is newer")?;
        let text = refused.to_string();
        ensure!(
            matches!(
                refused,
                StorageError::Newer {
                    format: 2,
                    known: 1,
                    ..
                }
            ),
            "{text}"
        );
        ensure!(
            text.contains(&format!("{shape} {NAMESPACE}/{name}")),
            "{text}"
        );
        // Nor does a holder of the Lease replace it that had read it before.
        let outcome = storage.write(&key, br#"{"n":2}"#, &Expect::Anything).await;
        ensure!(
            matches!(outcome, Err(StorageError::Newer { .. })),
            "{outcome:?}"
        );
        ensure!(api.get(&name).await?.data == newer.data);
        api.delete(&name, &Default::default()).await?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn a_controller_waits_for_records_of_a_newer_version() -> Result<()> {
    const NAME: &str = "gatewright-owners-00";
    let cluster = Cluster::start().await?;
    let labels = json!({"gatewright.io/keeps": "hostname-claims"});
    let record = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"of": "another kind"},
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels, "annotations": {FORMAT: "2"}}});
    let before = cluster.server.put(record).await?;
    let mut controller = cluster.controller("one")?;
    let line = controller.line(NAME).await?;
    ensure!(
        line.contains("format 2") && line.contains("newer version"),
        "{line}"
    );
    let deadline = Instant::now() + LIMIT;
    loop {
        let (status, text) = controller.probe("/readyz").await?;
        ensure!(status != 200, "it is ready without the record: {text}");
        if text.contains(NAME) {
            break;
        }
        ensure!(Instant::now() < deadline, "{text}");
        sleep(Duration::from_millis(50)).await;
    }
    // With the version that knows it, or a record from a backup, it goes on.
    let api = cluster.server.api("v1", "ConfigMap", NAMESPACE).await?;
    let there = api.get(NAME).await?;
    ensure!(
        there.metadata.resource_version == before.metadata.resource_version,
        "{there:?}"
    );
    api.patch(
        NAME,
        &Default::default(),
        &Patch::Merge(json!({"data": {"of": null}})),
    )
    .await?;
    set_format(&cluster, "ConfigMap", NAME, "1").await?;
    let deadline = Instant::now() + LIMIT;
    while controller.probe("/readyz").await?.0 != 200 {
        ensure!(
            Instant::now() < deadline,
            "{}",
            controller.probe("/readyz").await?.1
        );
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
