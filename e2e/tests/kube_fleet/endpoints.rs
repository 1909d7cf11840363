//! EndpointSlices of tenants that list addresses of the installation, of the API server and of Services.

use anyhow::{Context, Result};
use e2e::cluster::{BACKEND, Cluster, condition, service};
use e2e::world::free_port;
use kube::api::Patch;
use serde_json::{Value, json};

use super::{GATEWAY, dedicated, tenant, told};

const SLICE: &str = "discovery.k8s.io/v1";

/// Has mallory's slice list an address.
async fn list(cluster: &Cluster, address: &str) -> Result<()> {
    let slices = cluster.server.api(SLICE, "EndpointSlice", "mallory").await?;
    let listing = Patch::Merge(json!({"endpoints": [{"addresses": [address]}]}));
    slices.patch("web-1", &Default::default(), &listing).await?;
    Ok(())
}

/// Labels mallory's namespace.
async fn label(cluster: &Cluster, value: Value) -> Result<()> {
    let namespaces = cluster.server.api("v1", "Namespace", "").await?;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"gatewright.io/endpoints": value}}}));
    namespaces.patch("mallory", &Default::default(), &labels).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn addresses_of_envoys_of_the_api_server_and_of_services_are_no_backends() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    dedicated(&cluster).await?;
    server.apply(include_str!("../../../deploy/gatewayclass.yaml")).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    tenant(&cluster, "mallory", "gatewright", free_port()?, &["web.mallory.example.org"]).await?;
    for object in service("mallory", "web", 80) {
        server.put(object).await?;
    }
    let verdict = |o: &Value| told(&o["status"]["parents"][0], "ResolvedRefs");
    let fine = |o: &Value| {
        condition(&o["status"]["parents"][0], "ResolvedRefs").is_some_and(|condition| condition["status"] == "True")
    };
    let refused = |o: &Value, why: &str| {
        let (reason, text) = verdict(o);
        reason == "EndpointNotPermitted" && text.contains(why)
    };

    // The address of the Envoys is that of backends as well, on the host network: the label decides.
    cluster.until(GATEWAY, "HTTPRoute", "mallory", "web", fine).await?;
    label(&cluster, Value::Null).await?;
    let ours = format!("{BACKEND}:80 (an address of Gatewright and its Envoys)");
    cluster.until(GATEWAY, "HTTPRoute", "mallory", "web", |o| refused(o, &ours)).await?;
    list(&cluster, "192.0.2.80").await?;
    cluster.until(GATEWAY, "HTTPRoute", "mallory", "web", fine).await?;

    let kubernetes = server.api("v1", "Service", "default").await?.get("kubernetes").await?;
    let address = kubernetes.data["spec"]["clusterIP"].as_str().context("it has an address")?.to_owned();
    list(&cluster, &address).await?;
    let service = format!("{address}:80 (the address of a Service)");
    cluster.until(GATEWAY, "HTTPRoute", "mallory", "web", |o| refused(o, &service)).await?;

    // The API server of the tests listens on loopback, which it lists in no slice of its own.
    let address = "192.0.2.10";
    let labels = json!({"kubernetes.io/service-name": "kubernetes"});
    server
        .put(json!({"apiVersion": SLICE, "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": "default", "name": "kubernetes", "labels": labels},
            "endpoints": [{"addresses": [address]}], "ports": [{"name": "https", "port": 6443}]}))
        .await?;
    list(&cluster, address).await?;
    cluster.until(GATEWAY, "HTTPRoute", "mallory", "web", |o| refused(o, "an address of the API server")).await?;

    list(&cluster, "fd00:ec2::254").await.expect_err("the slice is of IPv4");
    list(&cluster, "168.63.129.16").await?;
    cluster.until(GATEWAY, "HTTPRoute", "mallory", "web", |o| refused(o, "a metadata service")).await?;
    // No label makes that one a backend.
    label(&cluster, json!("any")).await?;
    list(&cluster, BACKEND).await?;
    cluster.until(GATEWAY, "HTTPRoute", "mallory", "web", fine).await?;
    list(&cluster, "168.63.129.16").await?;
    cluster.until(GATEWAY, "HTTPRoute", "mallory", "web", |o| refused(o, "a metadata service")).await?;
    Ok(())
}
