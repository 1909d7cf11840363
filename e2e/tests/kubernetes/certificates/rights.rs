//! Without the right to write Secrets, which is omitted where cert-manager issues: our certificates
//! are missing, one condition names the missing right, and nothing else is affected.

use std::time::Instant;

use anyhow::{Context, Result};
use e2e::cluster::{ACCOUNT, is_true, tls_secret};
use e2e::probe::Probe;
use serde_json::json;

use super::place::{HOST, Place, SPACE};
use e2e::tenants::{
    CERT_MANAGER, GATEWAY, TENANT, certificate_name, namespace, ready, route, tenant, until,
};

const OTHER: &str = "tenant-other";

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and Pebble: e2e/tools install"]
async fn without_the_right_to_write_secrets_certificates_alone_are_missing() -> Result<()> {
    let place = Place::start().await?;
    let server = &place.cluster.server;
    let roles = server
        .api("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "")
        .await?;
    roles
        .delete("gatewright-controller-certificates", &Default::default())
        .await?;
    server
        .until_may(ACCOUNT, ("create", "", "secrets", SPACE), false)
        .await?;
    let began = Instant::now();
    let _controller = place.beside_cert_manager("one").await?;
    let _envoy = place.envoy().await?;
    place
        .tenant(json!({"gatewright.io/issuer": "internal-ca"}))
        .await?;
    place.route("web", HOST).await?;

    // One condition with the verb, the resource and the fix.
    let said = place
        .cluster
        .until(TENANT, "TenantGateway", SPACE, "cozystack", |object| {
            let text = ready(object).map(ToString::to_string).unwrap_or_default();
            text.contains("cannot create resource")
                && text.contains("secrets")
                && text.contains("deploy/certificates")
        })
        .await?;
    let host = said["status"]["listeners"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|l| l["hostname"] == HOST);
    assert_eq!(host.context("it has a listener")?["ready"], false);

    // cert-manager is used as before, and a Secret that a user provides is served.
    namespace(server, OTHER, "other.example.org").await?;
    server
        .put(tenant(
            OTHER,
            json!({"apex": "other.example.org", "gatewayClassName": "gatewright"}),
        ))
        .await?;
    let theirs = "web.other.example.org";
    server.put(route(OTHER, "web", OTHER, &[theirs])).await?;
    let name = certificate_name(theirs);
    place
        .cluster
        .until(CERT_MANAGER, "Certificate", OTHER, &name, |certificate| {
            !certificate.is_null()
        })
        .await?;
    server.put(tls_secret(OTHER, &name, &[theirs])?).await?;
    place
        .cluster
        .until(GATEWAY, "Gateway", OTHER, "cozystack", |gateway| {
            let listeners = gateway["status"]["listeners"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            listeners
                .iter()
                .any(|l| l["name"] != "http" && is_true(l, "Programmed"))
        })
        .await?;
    let plain = Probe::http((place.address, 80).into(), HOST).send().await?;
    assert_eq!(plain.status, 301, "the rest of that Gateway is served");

    // It was retried a few times, and nothing else was denied.
    let denied = place.cluster.denied()?;
    let ours = |verb: &str, resource: &str, object: &str| {
        verb == "create" && resource == "secrets" && object.starts_with(SPACE)
    };
    assert!(
        !denied.is_empty() && denied.len() as u64 <= 10 + began.elapsed().as_secs() / 4,
        "{denied:#?}"
    );
    assert!(
        denied.iter().all(|r| ours(&r.verb, &r.resource, &r.object)),
        "{denied:#?}"
    );

    // Once it has the right, it recovers by itself.
    server
        .apply(include_str!("../../../../deploy/certificates/rbac.yaml"))
        .await?;
    until("it is issued", async || {
        let secrets = server.api("v1", "Secret", SPACE).await?;
        Ok(secrets.get_opt(&certificate_name(HOST)).await?.is_some())
    })
    .await?;
    Ok(())
}
