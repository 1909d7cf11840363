//! Objects that have lost their owner reference: restored from a backup as Velero does, or left by
//! a deletion without cascade. They are taken over, look-alikes of tenants are not, and no host is
//! served in clear meanwhile.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use e2e::cluster::{BACKEND, Cluster, condition, is_true, service, tls_secret};
use e2e::echo::Echo;
use e2e::port::{free_port, own_address};
use e2e::probe::Probe;
use e2e::tenants::{
    CERT_MANAGER, GATEWAY, TENANT, cluster, id, namespace, objects, program, ready, route, tenant,
    until, until_ready,
};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};

use crate::fleet;

/// Returns an object as a backup brings it back: without status, owner, UID and managed fields.
fn restored(object: &Value) -> Value {
    let meta = &object["metadata"];
    let mut bare = object.clone();
    bare["metadata"] = json!({"name": meta["name"], "namespace": meta["namespace"],
        "labels": meta["labels"], "annotations": meta["annotations"]});
    if let Some(bare) = bare.as_object_mut() {
        bare.remove("status");
    }
    bare
}

/// Creates an object as the program that restores backups.
async fn restore(cluster: &Cluster, object: &Value) -> Result<Value> {
    let (api, _) = cluster.server.api_of(object).await?;
    let params = PostParams {
        field_manager: Some("velero-server".to_owned()),
        ..PostParams::default()
    };
    let made = api
        .create(&params, &serde_json::from_value(restored(object))?)
        .await?;
    Ok(serde_json::to_value(made)?)
}

async fn delete(cluster: &Cluster, object: &Value) -> Result<()> {
    let (api, name) = cluster.server.api_of(object).await?;
    api.delete(&name, &DeleteParams::default()).await?;
    until("it is deleted", async || {
        Ok(api.get_opt(&name).await?.is_none())
    })
    .await
}

/// Waits until objects are owned by the present TenantGateway of a namespace, and are the same as
/// before.
async fn until_taken_over(cluster: &Cluster, space: &str, before: &[Value]) -> Result<()> {
    let server = &cluster.server;
    let api = server.api(TENANT, "TenantGateway", space).await?;
    let owner = api.get("cozystack").await?.metadata.uid;
    until("all objects are taken over", async || {
        let now = objects(server, space).await?;
        Ok(before.iter().all(|old| {
            now.iter().any(|new| {
                id(old) == id(new)
                    && old["metadata"]["uid"] == new["metadata"]["uid"]
                    && new["metadata"]["ownerReferences"][0]["uid"] == json!(owner)
            })
        }))
    })
    .await
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn derived_objects_are_taken_over_after_a_restore_and_a_deletion_without_cascade()
-> Result<()> {
    let cluster = cluster().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    let (space, apex) = ("tenant-vel", "vel.example.org");
    namespace(server, space, apex).await?;
    let object = tenant(space, json!({"apex": apex}));
    server.put(object.clone()).await?;
    // More hosts than a Gateway has room for, so that there is a ListenerSet as well.
    for number in 0..5 {
        let hosts: Vec<String> = (0..16).map(|n| format!("h{number}-{n}.{apex}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        server
            .put(route(space, &format!("r{number}"), space, &hosts))
            .await?;
    }
    // The Gateway, the redirect, the Issuer, a ListenerSet, and a Certificate for each host.
    until("everything is made", async || {
        Ok(objects(server, space).await?.len() == 84)
    })
    .await?;
    cluster.quiet().await?;
    let before = objects(server, space).await?;
    let of_kind = |kind: &str| {
        before
            .iter()
            .filter(|object| object["kind"] == kind)
            .count()
    };
    for (kind, count) in [
        ("Gateway", 1),
        ("ListenerSet", 1),
        ("HTTPRoute", 1),
        ("Issuer", 1),
        ("Certificate", 80),
    ] {
        assert_eq!(of_kind(kind), count, "{kind}");
    }

    // kubectl delete tenantgateway --cascade=orphan, and again.
    let tenants = server.api(TENANT, "TenantGateway", space).await?;
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    tenants.delete("cozystack", &orphan).await?;
    until("the TenantGateway is deleted", async || {
        Ok(tenants.get_opt("cozystack").await?.is_none())
    })
    .await?;
    cluster.quiet().await?;
    assert_eq!(
        objects(server, space).await?,
        [] as [Value; 0],
        "they have no owner, and none is given to them"
    );
    server.put(object.clone()).await?;
    until_taken_over(&cluster, space, &before).await?;
    program(server, "Gateway", space, "cozystack").await?;

    // A restore from a backup: the TenantGateway comes last.
    let backup: Vec<Value> = objects(server, space)
        .await?
        .into_iter()
        .map(|mut object| {
            let is_of_cert_manager =
                matches!(object["kind"].as_str(), Some("Issuer" | "Certificate"));
            object["apiVersion"] = json!(if is_of_cert_manager {
                CERT_MANAGER
            } else {
                GATEWAY
            });
            object
        })
        .collect();
    drop(controller);
    tenants.delete("cozystack", &orphan).await?;
    until("the TenantGateway is deleted", async || {
        Ok(tenants.get_opt("cozystack").await?.is_none())
    })
    .await?;
    let mut brought = Vec::new();
    for object in &backup {
        delete(&cluster, object).await?;
        let mut made = restore(&cluster, object).await?;
        made["kind"] = object["kind"].clone();
        brought.push(made);
    }
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    server.put(object).await?;
    until_taken_over(&cluster, space, &brought).await?;
    program(server, "Gateway", space, "cozystack").await?;
    until("it is not in anybody's way", async || {
        let object = serde_json::to_value(tenants.get("cozystack").await?)?;
        Ok(ready(&object).is_some_and(|ready| ready["reason"] != "ForeignObject"))
    })
    .await?;
    cluster.quiet().await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn a_look_alike_of_a_tenant_is_not_taken_over() -> Result<()> {
    let cluster = cluster().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    let labels =
        json!({"cozystack.io/managed-by": "cozystack-controller", "cozystack.io/gateway": "X"});
    for (space, labels, manager) in [
        ("tenant-bare", json!({}), "kubectl"),
        ("tenant-bare-ours", json!({}), "gatewright"),
        ("tenant-like", labels, "kubectl"),
    ] {
        let apex = format!("{space}.example.org");
        namespace(server, space, &apex).await?;
        let mut labels = labels.clone();
        if labels["cozystack.io/gateway"] == "X" {
            labels["cozystack.io/gateway"] = json!(space);
        }
        let gateway = json!({"apiVersion": GATEWAY, "kind": "Gateway",
            "metadata": {"name": "cozystack", "namespace": space, "labels": labels},
            "spec": {"gatewayClassName": "cilium", "listeners": [
                {"name": "http", "protocol": "HTTP", "port": 80, "allowedRoutes": {"namespaces": {"from": "All"}}}]}});
        let (api, _) = server.api_of(&gateway).await?;
        api.patch(
            "cozystack",
            &PatchParams::apply(manager),
            &Patch::Apply(&gateway),
        )
        .await?;
        let before = api.get("cozystack").await?;
        server.put(tenant(space, json!({"apex": apex}))).await?;
        server
            .put(route(space, "web", space, &[&format!("web.{apex}")]))
            .await?;
        let told = until_ready(&cluster, space, "ForeignObject").await?;
        let message = told["message"].as_str().context("it has one")?;
        assert!(
            message.contains(&format!(
                "Gateway {space}/cozystack is not owned by TenantGateway"
            )),
            "{message}"
        );
        cluster.quiet().await?;
        let after = api.get("cozystack").await?;
        assert_eq!(before.data["spec"], after.data["spec"], "{space}");
        assert_eq!(after.metadata.owner_references, None, "{space}");
        // Without it, the Gateway is made.
        api.delete("cozystack", &DeleteParams::default()).await?;
        cluster
            .until(GATEWAY, "Gateway", space, "cozystack", |o| {
                o["metadata"]["ownerReferences"][0]["kind"] == "TenantGateway"
            })
            .await?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn no_host_is_served_in_clear_while_its_redirect_has_no_owner() -> Result<()> {
    let address = own_address();
    let cluster = cluster().await?.reached_at(address.into());
    let server = &cluster.server;
    let echo = Echo::start_on("shop", BACKEND).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (mut envoy, _tls) = cluster.envoy("envoy-a").await?;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let (space, apex) = ("tenant-clear", "clear.example.org");
    let host = format!("shop.{apex}");
    namespace(server, space, apex).await?;
    server
        .put(tls_secret(
            space,
            "wildcard",
            &[apex, &format!("*.{apex}")],
        )?)
        .await?;
    for object in service(space, "web", echo.address().port()) {
        server.put(object).await?;
    }
    let object = tenant(
        space,
        json!({"apex": apex, "certMode": "existingSecret", "wildcardSecretRef": {"name": "wildcard"},
            "gatewayClassName": "gatewright"}),
    );
    server.put(object.clone()).await?;
    server.put(route(space, "web", space, &[&host])).await?;
    until_ready(&cluster, space, "Reconciled").await?;
    envoy.ready().await?;
    let http: SocketAddr = format!("{address}:80").parse()?;
    let https: SocketAddr = format!("{address}:443").parse()?;
    let plain = async || anyhow::Ok(Probe::http(http, &host).send().await?.status);
    let secure = async || anyhow::Ok(Probe::https(https, &host).send().await?.status);
    until("HTTPS is served", async || {
        Ok(secure().await.is_ok_and(|status| status == 200))
    })
    .await?;
    assert_eq!(plain().await?, 301, "plain HTTP leads to HTTPS");

    let tenants = server.api(TENANT, "TenantGateway", space).await?;
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    tenants.delete("cozystack", &orphan).await?;
    until("the TenantGateway is deleted", async || {
        assert_ne!(plain().await?, 200, "while it is being deleted");
        Ok(tenants.get_opt("cozystack").await?.is_none())
    })
    .await?;
    let settled = cluster.quiet().await?;
    assert_eq!(plain().await?, 301, "without a TenantGateway");
    assert_eq!(secure().await?, 200, "HTTPS is served all the time");
    let gateway = cluster
        .until(GATEWAY, "Gateway", space, "cozystack", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    assert_eq!(gateway["metadata"]["ownerReferences"], Value::Null);
    assert!(settled > 0, "something was written before");
    server.put(object).await?;
    until("it is taken over", async || {
        assert_eq!(plain().await?, 301, "while it is taken over");
        let gateway = server
            .api(GATEWAY, "Gateway", space)
            .await?
            .get("cozystack")
            .await?;
        Ok(gateway.metadata.owner_references.is_some())
    })
    .await?;
    until_ready(&cluster, space, "Reconciled").await?;
    assert_eq!(plain().await?, 301, "afterwards");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn the_service_of_a_gateway_keeps_its_address() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    fleet::dedicated(&cluster).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    let space = "restored-services";
    fleet::tenant(&cluster, space, "own", free_port()?, &["web.example.org"]).await?;
    let is_made = |o: &Value| o["metadata"]["ownerReferences"][0]["kind"] == "Gateway";
    let service = cluster
        .until("v1", "Service", space, "edge-own", is_made)
        .await?;
    let slices = "discovery.k8s.io/v1";
    let slice = cluster
        .until(slices, "EndpointSlice", space, "edge-own-v4", is_made)
        .await?;
    cluster.quiet().await?;
    let gateways = server.api(GATEWAY, "Gateway", space).await?;
    let bare = json!({"metadata": {"ownerReferences": null}});
    for is_restored in [false, true] {
        let services = server.api("v1", "Service", space).await?;
        let uid = if is_restored {
            drop(controller);
            delete(&cluster, &service).await?;
            delete(&cluster, &slice).await?;
            let mut backup = service.clone();
            for field in ["clusterIP", "clusterIPs"] {
                if let Some(spec) = backup["spec"].as_object_mut() {
                    spec.remove(field);
                }
            }
            let made = restore(&cluster, &backup).await?;
            restore(&cluster, &slice).await?;
            controller = cluster.controller("one")?;
            made["metadata"]["uid"].clone()
        } else {
            for (api_version, kind, name) in [
                ("v1", "Service", "edge-own"),
                (slices, "EndpointSlice", "edge-own-v4"),
            ] {
                server
                    .api(api_version, kind, space)
                    .await?
                    .patch(name, &PatchParams::default(), &Patch::Merge(&bare))
                    .await?;
            }
            json!(services.get("edge-own").await?.metadata.uid)
        };
        let taken = cluster
            .until("v1", "Service", space, "edge-own", is_made)
            .await?;
        assert_eq!(taken["metadata"]["uid"], uid, "restored: {is_restored}");
        cluster
            .until(slices, "EndpointSlice", space, "edge-own-v4", is_made)
            .await?;
    }
    fleet::give(&cluster, space, "edge-own", "192.0.2.7").await?;
    let gateway = serde_json::to_value(gateways.get("edge").await?)?;
    let told = condition(&gateway["status"], "Programmed").cloned();
    assert!(
        !told.is_some_and(|told| {
            let message = told["message"].as_str().unwrap_or_default();
            message.contains("another owner")
        }),
        "{:#}",
        gateway["status"]
    );
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
