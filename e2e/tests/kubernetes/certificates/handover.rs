//! Existing Secrets: certificates of cert-manager and of other people are kept, and foreign Secrets
//! are not overwritten.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::cluster::is_true;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use super::place::{Place, SPACE};
use e2e::tenants::{CERT_MANAGER, GATEWAY, TENANT, certificate_name, quiet, until, until_owned};

/// Makes a Secret with a 90-day certificate for a host that expires in `left` hours; returns the
/// certificate, too.
fn secret(host: &str, left: i64, annotations: Value) -> Result<(Value, String)> {
    let mut params = CertificateParams::new(vec![host.to_owned()])?;
    let end = time::OffsetDateTime::now_utc() + Duration::from_secs(u64::try_from(left * 3600)?);
    (params.not_before, params.not_after) = (end - Duration::from_secs(90 * 86400), end);
    let key = KeyPair::generate()?;
    let pem = params.self_signed(&key)?.pem();
    let object = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": certificate_name(host), "namespace": SPACE, "annotations": annotations},
        "stringData": {"tls.crt": pem, "tls.key": key.serialize_pem()}});
    Ok((object, pem))
}

fn by_cert_manager(host: &str) -> Value {
    json!({"cert-manager.io/certificate-name": certificate_name(host), "cert-manager.io/issuer-name": "x"})
}

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and Pebble: e2e/tools install"]
async fn certificates_of_cert_manager_are_served_until_their_renewal_is_due() -> Result<()> {
    let place = Place::start().await?;
    let server = &place.cluster.server;
    let host = "kept.cert.example.org";
    // cert-manager issues, as deployed by default.
    let before = place.beside_cert_manager("one").await?;
    let _envoy = place.envoy().await?;
    place.by_acme().await?;
    place.route("kept", host).await?;
    let certificate = format!("Certificate {}", certificate_name(host));
    let fixed = ["Gateway cozystack", "HTTPRoute cozystack-http-redirect"];
    until_owned(
        server,
        SPACE,
        &[fixed[0], fixed[1], "Issuer cozystack-gateway", &certificate],
    )
    .await?;
    let (kept, root) = secret(host, 80 * 24, by_cert_manager(host))?;
    server.put(kept).await?;
    place.until_served(host, &root).await?;

    // From now on the controller issues; cert-manager's objects are deleted.
    drop(before);
    let during = place.controller("two").await?;
    until_owned(server, SPACE, &fixed).await?;
    place.until_served(host, &root).await?;

    // A further host, whose certificate is about to expire; and two that other people maintain.
    let old = "old.cert.example.org";
    let (ending, ending_root) = secret(old, 3, by_cert_manager(old))?;
    server.put(ending).await?;
    place.route("old", old).await?;
    place
        .until_served(old, &place.pebble.issuing_root(0).await?)
        .await?;
    let renewed = server
        .api("v1", "Secret", SPACE)
        .await?
        .get(&certificate_name(old))
        .await?;
    let says = renewed.metadata.annotations.context("it has annotations")?;
    assert!(
        says.contains_key("cert-manager.io/issuer-name")
            && says.contains_key("gatewright.io/issuer"),
        "{says:?}"
    );
    assert_ne!(ending_root, root);

    let theirs = "theirs.cert.example.org";
    let (brought, brought_root) = secret(theirs, 80 * 24, json!({}))?;
    server.put(brought).await?;
    place.route("theirs", theirs).await?;
    place.until_served(theirs, &brought_root).await?;

    let taken = "taken.cert.example.org";
    let name = certificate_name(taken);
    server
        .put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": SPACE},
            "stringData": {"password": "x"}}))
        .await?;
    place.route("taken", taken).await?;
    place
        .cluster
        .until(GATEWAY, "Gateway", SPACE, "cozystack", |o| {
            o["status"].to_string().contains("delete it") && is_true(&o["status"], "Accepted")
        })
        .await?;

    quiet(&place.cluster, 0).await?;
    assert_eq!(place.pebble.orders(), 1, "for the one that was due");
    assert_eq!(place.installs()?.len(), 1, "for the one that was due");
    place.until_served(host, &root).await?;

    // A user's Secret is deleted: a certificate is issued in its place.
    let secrets = server.api("v1", "Secret", SPACE).await?;
    secrets
        .delete(&certificate_name(theirs), &Default::default())
        .await?;
    place
        .until_served(theirs, &place.pebble.issuing_root(0).await?)
        .await?;
    assert_eq!(
        place.pebble.orders(),
        2,
        "the second one is ordered as well"
    );
    assert_eq!(place.installs()?.len(), 2, "and installed");

    // Back again: cert-manager's objects come back under the same names, and nothing else happens.
    drop(during);
    let _after = place.beside_cert_manager("three").await?;
    place
        .cluster
        .until(
            CERT_MANAGER,
            "Issuer",
            SPACE,
            "cozystack-gateway",
            |issuer| !issuer.is_null(),
        )
        .await?;
    place.until_served(host, &root).await?;
    assert_eq!(place.installs()?.len(), 2);
    assert_eq!(
        place.cluster.denied()?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and Pebble: e2e/tools install"]
async fn the_issuer_of_a_tenant_gateway_can_be_changed_while_it_serves() -> Result<()> {
    let place = Place::start().await?;
    let _controller = place.controller("one").await?;
    let _envoy = place.envoy().await?;
    place.by_acme().await?;
    let host = "moved.cert.example.org";
    place.route("moved", host).await?;
    place
        .until_served(host, &place.pebble.issuing_root(0).await?)
        .await?;

    place
        .tenant(json!({"gatewright.io/issuer": "internal-ca"}))
        .await?;
    let secrets = place.cluster.server.api("v1", "Secret", SPACE).await?;
    let name = certificate_name(host);
    until("the internal CA has issued", async || {
        let annotations = secrets
            .get(&name)
            .await?
            .metadata
            .annotations
            .unwrap_or_default();
        Ok(annotations
            .get("gatewright.io/issuer")
            .is_some_and(|issuer| issuer == "internal-ca"))
    })
    .await?;
    place
        .cluster
        .until(TENANT, "TenantGateway", SPACE, "cozystack", |o| {
            is_true(&o["status"], "Ready")
        })
        .await?;
    assert_eq!(place.pebble.orders(), 1);
    // The ACME account stays: switching back costs no registration.
    assert_eq!(place.entries("accounts").await?, 2);
    Ok(())
}
