//! TenantGateways admitted by a laxer or newer CRD than ours: Cozystack's own has no rules, and may
//! have more fields. Unknown fields are ignored; unreadable ones are reported and take nothing
//! away, also after a restart.

use anyhow::Result;
use e2e::apiserver::Request;
use e2e::cluster::{Cluster, condition};
use serde_json::{Value, json};

use e2e::tenants::{
    CLAIMS, GATEWAY, OWNER, TENANT, cluster, member, namespace, owned, quiet, route, tenant, until,
    until_ready,
};

const APEX: &str = "lax.example.org";

/// Returns the status of claims of a namespace's routes.
async fn told(cluster: &Cluster, space: &str) -> Result<Option<Value>> {
    let route = cluster
        .server
        .api(GATEWAY, "HTTPRoute", space)
        .await?
        .get("web")
        .await?;
    let parents = route.data["status"]["parents"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let ours = parents
        .into_iter()
        .find(|parent| parent["controllerName"] == CLAIMS);
    Ok(ours.and_then(|parent| Some(condition(&parent, "Accepted")?["status"].clone())))
}

async fn label(cluster: &Cluster, space: &str) -> Result<Option<String>> {
    let labels = cluster
        .server
        .api("v1", "Namespace", "")
        .await?
        .get(space)
        .await?
        .metadata
        .labels;
    Ok(labels.unwrap_or_default().remove(OWNER))
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn unreadable_objects_take_nothing_away() -> Result<()> {
    let cluster = cluster().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    namespace(server, "tenant-lax", APEX).await?;
    member(server, "tenant-lax-b", "tenant-lax", APEX).await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cozy-lax"}}))
        .await?;

    let spec = |more: Value| {
        let mut spec = json!({"apex": APEX, "attachedNamespaces": ["cozy-lax"], "certMode": "http01",
            "issuerName": "letsencrypt-prod", "gatewayClassName": "cilium"});
        spec.as_object_mut()
            .expect("an object")
            .extend(more.as_object().cloned().unwrap_or_default());
        tenant("tenant-lax", spec)
    };
    // A field of a future version.
    let tomorrow = spec(json!({"tlsPassthroughListeners": [{"name": "x", "port": 6443}]}));
    server
        .admit_anything("tenantgateways.gateway.cozystack.io", tomorrow.clone())
        .await?;
    server
        .put(route(
            "cozy-lax",
            "web",
            "tenant-lax",
            &["web.lax.example.org"],
        ))
        .await?;
    until("the route has its host", async || {
        Ok(told(&cluster, "cozy-lax").await? == Some(json!("True")))
    })
    .await?;
    assert_eq!(
        label(&cluster, "cozy-lax").await?.as_deref(),
        Some("tenant-lax")
    );
    quiet(&cluster, 0).await?;
    let there = owned(server, "tenant-lax").await?;

    // A value of a wrong type.
    let before = cluster.writes()?.len();
    server
        .put(spec(json!({"attachedNamespaces": "all"})))
        .await?;
    let ready = until_ready(&cluster, "tenant-lax", "InvalidSpec").await?;
    let message = ready["message"].as_str().unwrap_or_default();
    assert!(
        ready["status"] == "False" && message.starts_with("spec: cannot be read: "),
        "{ready}"
    );
    let stays = async |before: usize| {
        let written = quiet(&cluster, before).await?;
        // Claimants get the reason.
        let good = |request: &&Request| {
            request.resource == "tenantgateways/status" || request.object == "tenant-lax-b/web"
        };
        assert!(written.iter().all(|request| good(&request)), "{written:?}");
        assert_eq!(owned(server, "tenant-lax").await?, there);
        assert_eq!(
            label(&cluster, "cozy-lax").await?.as_deref(),
            Some("tenant-lax")
        );
        assert_eq!(told(&cluster, "cozy-lax").await?, Some(json!("True")));
        anyhow::Ok(())
    };
    stays(before).await?;

    // A restarted controller knows only the current objects.
    drop(controller);
    let mut controller = cluster.controller("two")?;
    controller.line("holding the lease").await?;
    let before = cluster.writes()?.len();
    server
        .put(route(
            "tenant-lax-b",
            "web",
            "tenant-lax",
            &["web.lax.example.org", "late.lax.example.org"],
        ))
        .await?;
    stays(before).await?;
    assert_ne!(
        told(&cluster, "tenant-lax-b").await?,
        Some(json!("True")),
        "nothing comes to it"
    );

    server.put(tomorrow).await?;
    until(
        "mended, it goes on: another host has its certificate",
        async || Ok(owned(server, "tenant-lax").await?.len() == there.len() + 1),
    )
    .await?;
    cluster
        .until(TENANT, "TenantGateway", "tenant-lax", "cozystack", |o| {
            condition(&o["status"], "Ready").is_some_and(|ready| ready["reason"] != "InvalidSpec")
        })
        .await?;
    Ok(())
}
