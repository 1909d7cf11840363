//! Several replicas, one of which is killed in the middle of an order: one certificate, one order.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use tokio::time::sleep;

use super::place::{HOST, Place};
use e2e::tenants::until;

/// Waits until an order is persisted together with its URL.
async fn until_placed(place: &Place) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(place.cluster.server.client(), e2e::cluster::NAMESPACE);
    let orders = ListParams::default().labels("gatewright.io/keeps=orders");
    loop {
        let all = api.list(&orders).await?.items;
        let entry = all.first().and_then(|secret| {
            secret
                .data
                .as_ref()?
                .get("entry")
                .map(|bytes| bytes.0.clone())
        });
        if entry.is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains("\"url\":\"https")) {
            return Ok(());
        }
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and Pebble: e2e/tools install"]
async fn a_replica_that_dies_in_the_middle_of_an_order_leaves_it_to_the_next() -> Result<()> {
    let place = Place::start().await?;
    let controller = place.controller("one").await?;
    let _envoy = place.envoy().await?;
    place.by_acme().await?;
    place.route("web", HOST).await?;
    tokio::time::timeout(Duration::from_secs(120), until_placed(&place)).await??;
    // Killed, not terminated.
    drop(controller);
    assert_eq!(place.installs()?.len(), 0, "it died in the middle");

    let _next = place.controller("two").await?;
    place
        .until_served(HOST, &place.pebble.issuing_root(0).await?)
        .await?;
    until("the order is over", async || {
        Ok(place.entries("orders").await? == 0)
    })
    .await?;
    assert_eq!(place.pebble.orders(), 1, "no second order is placed");
    assert_eq!(place.pebble.issued(), 1, "one certificate is issued");
    assert_eq!(place.installs()?.len(), 1, "it is installed once");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and Pebble: e2e/tools install"]
async fn of_two_replicas_one_orders_and_both_answer() -> Result<()> {
    let place = Place::start().await?;
    let leader = place.controller("one").await?;
    let arguments = place.arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (mut other, xds) = place.cluster.replica_with_xds_and("two", &arguments)?;
    other.line("xDS at").await?;
    // The only Envoy is connected to the replica that does not order.
    let (mut envoy, _tls) = place.cluster.envoy_of("envoy-b", xds).await?;
    envoy.ready().await?;
    place.by_acme().await?;
    place.route("web", HOST).await?;
    let root = place.pebble.issuing_root(0).await?;
    place.until_served(HOST, &root).await?;
    assert_eq!(place.pebble.orders(), 1, "one replica orders");
    assert_eq!(place.pebble.issued(), 1, "one certificate is issued");
    assert_eq!(place.installs()?.len(), 1, "it is installed once");

    drop(leader);
    other.line("this replica issues certificates now").await?;
    place.until_served(HOST, &root).await?;
    place.route("more", "more.cert.example.org").await?;
    place.until_served("more.cert.example.org", &root).await?;
    assert_eq!(place.pebble.orders(), 2, "the renewal is ordered once");
    assert_eq!(place.pebble.issued(), 2, "and issued once");
    assert_eq!(place.installs()?.len(), 2, "and installed once");
    assert_eq!(
        place.cluster.denied()?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}
