//! Deletions that are due while a TenantGateway is invalid are made once it is corrected, without a
//! restart.

use anyhow::Result;
use kube::api::{DeleteParams, Patch};
use serde_json::json;

use super::troubles::{burst, compared};
use e2e::tenants::{cluster, namespace, objects, owned, quiet, tenant, until, until_ready};

/// More than the listeners of a Gateway: some are in a ListenerSet.
const HOSTS: usize = 70;
const LEFT: usize = 8;
const GATEWAY: &str = "gateway.networking.k8s.io/v1";

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn routes_that_went_while_the_specification_was_broken_leave_nothing_once_it_is_mended()
-> Result<()> {
    let cluster = cluster().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    for space in ["broken", "whole"] {
        namespace(
            server,
            &format!("tenant-{space}"),
            &format!("{space}.example.org"),
        )
        .await?;
        server
            .put(tenant(
                &format!("tenant-{space}"),
                json!({"apex": format!("{space}.example.org")}),
            ))
            .await?;
    }
    let count = async |space: &str| Ok::<_, anyhow::Error>(owned(server, space).await?.len());
    burst(server, "tenant-broken", "broken.example.org", 0..HOSTS).await?;
    burst(server, "tenant-whole", "whole.example.org", 0..LEFT).await?;
    until("all hosts stand", async || {
        Ok(count("tenant-broken").await? == HOSTS + 4)
    })
    .await?;
    let start = cluster.writes()?.len();
    quiet(&cluster, start).await?;

    // Most routes are deleted while the TenantGateway's spec cannot be read.
    let tenants = server
        .api(
            "gateway.cozystack.io/v1alpha1",
            "TenantGateway",
            "tenant-broken",
        )
        .await?;
    let apex = |apex: &str| Patch::Merge(json!({"spec": {"apex": apex}}));
    tenants
        .patch("cozystack", &Default::default(), &apex("not-allowed.org"))
        .await?;
    until_ready(&cluster, "tenant-broken", "ApexNotAllowed").await?;
    let routes = server.api(GATEWAY, "HTTPRoute", "tenant-broken").await?;
    for number in LEFT..HOSTS {
        routes
            .delete(&format!("r{number:03}"), &DeleteParams::default())
            .await?;
    }
    let start = cluster.writes()?.len();
    quiet(&cluster, start).await?;
    tenants
        .patch(
            "cozystack",
            &Default::default(),
            &apex("broken.example.org"),
        )
        .await?;

    // The result is that without these routes.
    until("what is left of them goes", async || {
        Ok(count("tenant-broken").await? == count("tenant-whole").await?)
    })
    .await?;
    let all = async |space: &str| {
        let (space, apex) = (format!("tenant-{space}"), format!("{space}.example.org"));
        anyhow::Ok(compared(objects(server, &space).await?, &apex, &space))
    };
    until("and the rest is the same", async || {
        Ok(all("broken").await? == all("whole").await?)
    })
    .await?;
    Ok(())
}
