//! CRDs that are deleted, with all their objects, and installed again.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use e2e::apiserver::ApiServer;
use e2e::apiserver::manifests::documents;
use e2e::cluster::Cluster;
use e2e::gatewright::Gatewright;
use serde_json::{Value, json};

use super::dedicated::{put_gateway, put_parameters};
use e2e::tenants::{
    GATEWAY, TENANT, cluster, namespace, objects, owned, quiet, route, tenant, until,
};

const SPACE: &str = "tenant-a";
/// More than the listeners of a Gateway.
const HOSTS: usize = 66;

/// Reads a CRD from its file.
fn definition(name: &str) -> Result<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in [".tools/gateway-api/config/crd/standard", "deploy/crds"] {
        for file in std::fs::read_dir(root.join(folder))? {
            let documents = documents(&std::fs::read_to_string(file?.path())?)?;
            if let Some(found) = documents
                .into_iter()
                .find(|document| document["metadata"]["name"] == name)
            {
                return Ok(found);
            }
        }
    }
    anyhow::bail!("no definition of {name}")
}

/// A kind, and the name of its CRD.
type Defined<'a> = (&'a str, &'a str);

const TLS_ROUTE: Defined<'_> = ("TLSRoute", "tlsroutes.gateway.networking.k8s.io");
const LISTENER_SET: Defined<'_> = ("ListenerSet", "listenersets.gateway.networking.k8s.io");
const PARAMETERS: Defined<'_> = ("GatewayParameters", "gatewayparameters.gatewright.io");
const HTTP_ROUTE: Defined<'_> = ("HTTPRoute", "httproutes.gateway.networking.k8s.io");
const TENANT_GATEWAY: Defined<'_> = ("TenantGateway", "tenantgateways.gateway.cozystack.io");

/// Deletes kinds, and waits until the controller has noticed.
async fn remove(
    server: &ApiServer,
    controller: &mut Gatewright,
    kinds: &[Defined<'_>],
) -> Result<()> {
    let definitions = server
        .api("apiextensions.k8s.io/v1", "CustomResourceDefinition", "")
        .await?;
    for (_, name) in kinds {
        definitions.delete(name, &Default::default()).await?;
    }
    for (kind, name) in kinds {
        controller
            .line(&format!("{kind}: not served by this API server"))
            .await?;
        assert_eq!(controller.state(kind).await?, "missing");
        until("it is gone", async || {
            Ok(definitions.get_opt(name).await?.is_none())
        })
        .await?;
    }
    Ok(())
}

/// Installs them again, and waits until the controller watches them.
async fn install(server: &ApiServer, controller: &Gatewright, kinds: &[Defined<'_>]) -> Result<()> {
    for (_, name) in kinds {
        server.put(definition(name)?).await?;
    }
    for (kind, _) in kinds {
        until(&format!("{kind} is watched"), async || {
            let log = controller.output();
            Ok(log.rfind(&format!(" {kind}: watched"))
                > log.rfind(&format!(" {kind}: not served by")))
        })
        .await?;
    }
    Ok(())
}

/// Returns kind and name of everything that the TenantGateway owns, and its hostnames.
async fn all(server: &ApiServer) -> Result<(BTreeSet<String>, Vec<String>)> {
    let mut hosts = Vec::new();
    for object in objects(server, SPACE).await? {
        let listeners = object["spec"]["listeners"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        hosts.extend(
            listeners
                .iter()
                .filter_map(|listener| Some(listener["hostname"].as_str()?.to_owned())),
        );
    }
    hosts.sort();
    Ok((owned(server, SPACE).await?, hosts))
}

async fn put_routes(server: &ApiServer) -> Result<()> {
    for number in 0..HOSTS {
        server
            .put(route(
                SPACE,
                &format!("r{number}"),
                SPACE,
                &[&format!("h{number}.a.example.org")],
            ))
            .await?;
    }
    Ok(())
}

/// Returns the UID of the dedicated Gateway's Service.
async fn service_uid(server: &ApiServer) -> Result<Option<String>> {
    let services = server.api("v1", "Service", "default").await?;
    Ok(services
        .get_opt("edge-own")
        .await?
        .and_then(|service| service.metadata.uid))
}

async fn begin() -> Result<Cluster> {
    let cluster = cluster().await?;
    let server = &cluster.server;
    put_gateway(server).await?;
    namespace(server, SPACE, "a.example.org").await?;
    server
        .put(tenant(SPACE, json!({"apex": "a.example.org"})))
        .await?;
    put_routes(server).await?;
    Ok(cluster)
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn removed_and_reinstalled_definitions_end_in_the_same_state() -> Result<()> {
    let cluster = begin().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    until("all hosts have a listener", async || {
        let (owned, hosts) = all(server).await?;
        Ok(
            owned.len() == HOSTS + 4
                && hosts.len() == HOSTS
                && service_uid(server).await?.is_some(),
        )
    })
    .await?;
    quiet(&cluster, 0).await?;
    let before = all(server).await?;
    let uid = service_uid(server).await?;
    let deleted = || {
        anyhow::Ok(
            cluster
                .writes()?
                .iter()
                .filter(|r| r.verb.starts_with("delete"))
                .count(),
        )
    };
    assert_eq!(
        controller.state("TLSRoute").await?,
        "complete",
        "the definition is watched again"
    );
    assert_eq!(
        controller.probe("/readyz").await?.0,
        200,
        "the replica is ready"
    );
    assert_eq!(controller.state("BackendTLSPolicy").await?, "complete");

    // Optional kinds.
    let optional = [TLS_ROUTE, LISTENER_SET, PARAMETERS];
    remove(server, &mut controller, &optional).await?;
    quiet(&cluster, 0).await?;
    assert_eq!(deleted()?, 0);
    assert_eq!(service_uid(server).await?, uid);
    install(server, &controller, &optional).await?;
    put_parameters(server).await?;
    until(
        "all is as it was",
        async || Ok(all(server).await? == before),
    )
    .await?;
    assert_eq!(service_uid(server).await?, uid);
    assert_eq!(deleted()?, 0);

    // All routes are deleted with their kind, and their derived objects, too.
    remove(server, &mut controller, &[HTTP_ROUTE]).await?;
    // Served again, with all objects at once: as after a restore.
    server.put(definition(HTTP_ROUTE.1)?).await?;
    until("routes are taken", async || {
        Ok(put_routes(server).await.is_ok())
    })
    .await?;
    until(
        "all is as it was",
        async || Ok(all(server).await? == before),
    )
    .await?;

    // And TenantGateways, with everything that they own.
    remove(server, &mut controller, &[TENANT_GATEWAY]).await?;
    install(server, &controller, &[TENANT_GATEWAY]).await?;
    server
        .put(tenant(SPACE, json!({"apex": "a.example.org"})))
        .await?;
    until(
        "it has all again",
        async || Ok(all(server).await? == before),
    )
    .await?;
    let gateways = server.api(GATEWAY, "Gateway", SPACE).await?;
    let owner = server
        .api(TENANT, "TenantGateway", SPACE)
        .await?
        .get("cozystack")
        .await?
        .metadata
        .uid;
    let owners = gateways
        .get("cozystack")
        .await?
        .metadata
        .owner_references
        .context("it has an owner")?;
    assert_eq!(Some(&owners[0].uid), owner.as_ref());
    assert_eq!(service_uid(server).await?, uid);
    Ok(())
}
