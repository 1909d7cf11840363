//! The controller's namespace was deleted with its internal CAs, and the tenants' certificates
//! stay: a new installation publishes the root that will renew them from the start.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{Cluster, NAMESPACE};
use e2e::gatewright::Gatewright;
use e2e::tenants::{certificate_name, namespace, route, tenant, until};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

const TENANT: &str = "tenant-a";
const HOST: &str = "shop.a.example.org";
const ROOTS: (&str, &str, &str) = ("v1", "ConfigMap", NAMESPACE);
const LIMIT: Duration = Duration::from_secs(180);

/// Returns the roots that are published, when there are some.
async fn roots(cluster: &Cluster) -> Result<String> {
    let has_some = |map: &Value| {
        map["data"]["ca.crt"]
            .as_str()
            .is_some_and(|text| text.contains("BEGIN CERTIFICATE"))
    };
    let map = cluster
        .server
        .until(ROOTS, "gatewright-internal-ca", LIMIT, has_some)
        .await?;
    Ok(map["data"]["ca.crt"].as_str().context("roots")?.to_owned())
}

/// Returns the certificate of the host.
async fn certificate(cluster: &Cluster) -> Result<Option<Vec<u8>>> {
    let api: Api<Secret> = Api::namespaced(cluster.server.client(), TENANT);
    let secret = api.get_opt(&certificate_name(HOST)).await?;
    Ok(secret
        .and_then(|secret| secret.data?.remove("tls.crt"))
        .map(|bytes| bytes.0)
        .filter(|bytes| !bytes.is_empty()))
}

/// Deletes everything that the controller stored in its namespace.
async fn delete_all(cluster: &Cluster) -> Result<()> {
    let client = cluster.server.client();
    let delete = DeleteParams::default();
    let all = ListParams::default();
    Api::<Secret>::namespaced(client.clone(), NAMESPACE)
        .delete_collection(&delete, &all)
        .await?;
    Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE)
        .delete_collection(&delete, &all)
        .await?;
    Api::<Lease>::namespaced(client, NAMESPACE)
        .delete_collection(&delete, &all)
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn roots_are_published_from_the_start_where_only_certificates_were_left() -> Result<()> {
    let cluster = e2e::tenants::cluster().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    namespace(server, TENANT, "a.example.org").await?;
    let first = cluster.controller_with("one", &["--set", "tenancy.certificates=Own"])?;
    let mut object = tenant(
        TENANT,
        json!({"apex": "a.example.org", "gatewayClassName": "gatewright"}),
    );
    object["metadata"]["annotations"] = json!({"gatewright.io/issuer": "internal-ca"});
    server.put(object).await?;
    server.put(route(TENANT, "web", TENANT, &[HOST])).await?;
    until("there is a certificate", async || {
        Ok(certificate(&cluster).await?.is_some())
    })
    .await?;
    let old = roots(&cluster).await?;
    let issued = certificate(&cluster).await?;

    drop(first);
    delete_all(&cluster).await?;
    let admin = tempfile::tempdir()?;
    let socket = admin.path().join("admin.sock").display().to_string();
    let _second = cluster.controller_with(
        "two",
        &["--set", "tenancy.certificates=Own", "--admin", &socket],
    )?;
    let new = roots(&cluster).await?;
    ensure!(new != old, "the key of the old root is gone");
    ensure!(
        certificate(&cluster).await? == issued,
        "a certificate that works stays until its renewal"
    );

    // Clients that have come to trust the root meanwhile trust the next certificate.
    let told = Gatewright::run(&["certs", "renew", HOST, "--admin", &socket])?;
    ensure!(
        told.status.success(),
        "{}",
        String::from_utf8_lossy(&told.stderr)
    );
    until("it is renewed", async || {
        Ok(certificate(&cluster).await? != issued)
    })
    .await?;
    ensure!(roots(&cluster).await? == new);
    ensure!(cluster.denied()?.is_empty(), "{:?}", cluster.denied()?);
    Ok(())
}
