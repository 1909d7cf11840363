//! End to end: a TenantGateway is applied, its Gateway written, its certificate issued, and the
//! host served with it.

use anyhow::{Context, Result};
use e2e::cluster::NAMESPACE;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use serde_json::json;

use super::place::{HOST, Place, SPACE};
use e2e::tenants::{owned, until_ready};

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and Pebble: e2e/tools install"]
async fn a_certificate_is_got_over_acme_through_our_envoy() -> Result<()> {
    let place = Place::start().await?;
    let _controller = place.controller("one").await?;
    let _envoy = place.envoy().await?;
    place.by_acme().await?;
    place.route("web", HOST).await?;

    place
        .until_served(HOST, &place.pebble.issuing_root(0).await?)
        .await?;
    until_ready(&place.cluster, SPACE, "Reconciled").await?;
    place.until_programmed().await?;
    assert_eq!(place.pebble.orders(), 1, "one order is placed");
    assert_eq!(place.pebble.issued(), 1, "one certificate is issued");
    assert_eq!(place.installs()?.len(), 1, "it is installed once");
    let objects = owned(&place.cluster.server, SPACE).await?;
    assert!(
        !objects
            .iter()
            .any(|id| id.starts_with("Issuer") || id.starts_with("Certificate")),
        "{objects:?}"
    );
    let secret = place.secrets().await?.pop().context("there is one")?;
    let name = secret.metadata.name.context("it has a name")?;
    assert!(
        name.starts_with("cozystack-web-") && name.ends_with("-tls"),
        "cert-manager's name: {name}"
    );

    // A second host costs a second order; in the steady state nothing is written.
    place.route("more", "more.cert.example.org").await?;
    place
        .until_served(
            "more.cert.example.org",
            &place.pebble.issuing_root(0).await?,
        )
        .await?;
    // The tenant's account, and the installation's, which was not registered.
    assert_eq!(place.pebble.orders(), 2, "each tenant has its order");
    assert_eq!(place.entries("accounts").await?, 2, "each has its account");
    place.cluster.quiet().await?;
    assert_eq!(
        place.entries("orders").await?,
        0,
        "what was needed on the way is gone"
    );

    // The Secret is deleted: the held certificate is written again, without an order.
    let secrets: Api<Secret> = Api::namespaced(place.cluster.server.client(), SPACE);
    secrets.delete(&name, &Default::default()).await?;
    place
        .cluster
        .until("v1", "Secret", SPACE, &name, |secret| !secret.is_null())
        .await?;
    place
        .until_served(HOST, &place.pebble.issuing_root(0).await?)
        .await?;
    assert_eq!(place.pebble.orders(), 2);
    assert_eq!(
        place.cluster.denied()?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and Pebble: e2e/tools install"]
async fn the_internal_ca_issues_where_there_is_no_way_out() -> Result<()> {
    let place = Place::start().await?;
    // As deployed by default: cert-manager issues for the others.
    let mut controller = place.cluster.controller("one")?;
    controller.line("xDS at").await?;
    let _envoy = place.envoy().await?;
    place
        .tenant(json!({"gatewright.io/issuer": "internal-ca"}))
        .await?;
    place.route("web", HOST).await?;
    place
        .cluster
        .until(
            "v1",
            "ConfigMap",
            NAMESPACE,
            "gatewright-internal-ca",
            |map| map["data"].is_object(),
        )
        .await?;
    let maps: Api<ConfigMap> = Api::namespaced(place.cluster.server.client(), NAMESPACE);
    let roots = maps
        .get("gatewright-internal-ca")
        .await?
        .data
        .and_then(|data| data.get("ca.crt").cloned());
    let roots = roots.context("the roots are told")?;
    place.until_served(HOST, &roots).await?;
    until_ready(&place.cluster, SPACE, "Reconciled").await?;
    assert_eq!(place.pebble.orders(), 0, "nothing is ordered of the CA");
    assert_eq!(
        place.entries("authorities").await?,
        1,
        "the internal CA is stored"
    );

    // Another process has the same CA.
    drop(controller);
    let mut controller = place.cluster.controller("two")?;
    controller.line("xDS at").await?;
    place.route("more", "more.cert.example.org").await?;
    place.until_served("more.cert.example.org", &roots).await?;
    assert_eq!(place.installs()?.len(), 2, "what was there stays");
    assert_eq!(
        place.cluster.denied()?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}
