//! EndpointSlices of tenants with addresses of the installation, of the API server, of nodes and
//! Services, and of other tenants' pods.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{BACKEND, Cluster, condition, pod, service};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::probe::Probe;
use kube::api::Patch;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{GATEWAY, answer, dedicated, tenant, told};

const LIMIT: Duration = Duration::from_secs(180);

const SLICE: &str = "discovery.k8s.io/v1";

/// Lists an address in mallory's slice.
async fn list(cluster: &Cluster, address: &str) -> Result<()> {
    let slices = cluster
        .server
        .api(SLICE, "EndpointSlice", "mallory")
        .await?;
    let target = pod_named("mallory", "web-1");
    let listing =
        Patch::Merge(json!({"endpoints": [{"addresses": [address], "targetRef": target}]}));
    slices.patch("web-1", &Default::default(), &listing).await?;
    Ok(())
}

/// Sets the label of mallory's namespace.
async fn label(cluster: &Cluster, value: Value) -> Result<()> {
    let namespaces = cluster.server.api("v1", "Namespace", "").await?;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"gatewright.io/endpoints": value}}}));
    namespaces
        .patch("mallory", &Default::default(), &labels)
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn addresses_of_envoys_of_the_api_server_and_of_services_are_no_backends() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    dedicated(&cluster).await?;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    tenant(
        &cluster,
        "mallory",
        "gatewright",
        free_port()?,
        &["web.mallory.example.org"],
    )
    .await?;
    for object in service("mallory", "web", 80) {
        server.put(object).await?;
    }
    let verdict = |o: &Value| told(&o["status"]["parents"][0], "ResolvedRefs");
    let fine = |o: &Value| {
        condition(&o["status"]["parents"][0], "ResolvedRefs")
            .is_some_and(|condition| condition["status"] == "True")
    };
    let refused = |o: &Value, why: &str| {
        let (reason, text) = verdict(o);
        reason == "EndpointNotPermitted" && text.contains(why)
    };

    // The Envoys' address is that of backends as well, on the host network: the label decides.
    cluster
        .until(GATEWAY, "HTTPRoute", "mallory", "web", fine)
        .await?;
    label(&cluster, Value::Null).await?;
    let ours = format!("{BACKEND}:80 (an address of Gatewright and its Envoys)");
    cluster
        .until(GATEWAY, "HTTPRoute", "mallory", "web", |o| {
            refused(o, &ours)
        })
        .await?;
    server.put(pod("mallory", "web-1", "192.0.2.80")).await?;
    list(&cluster, "192.0.2.80").await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "mallory", "web", fine)
        .await?;

    let kubernetes = server
        .api("v1", "Service", "default")
        .await?
        .get("kubernetes")
        .await?;
    let address = kubernetes.data["spec"]["clusterIP"]
        .as_str()
        .context("it has an address")?
        .to_owned();
    list(&cluster, &address).await?;
    let service = format!("{address}:80 (the address of a Service)");
    cluster
        .until(GATEWAY, "HTTPRoute", "mallory", "web", |o| {
            refused(o, &service)
        })
        .await?;

    // The API server of the tests listens on loopback, and has no slice with that address.
    let address = "192.0.2.10";
    let labels = json!({"kubernetes.io/service-name": "kubernetes"});
    server
        .put(
            json!({"apiVersion": SLICE, "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": "default", "name": "kubernetes", "labels": labels},
            "endpoints": [{"addresses": [address]}], "ports": [{"name": "https", "port": 6443}]}),
        )
        .await?;
    list(&cluster, address).await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "mallory", "web", |o| {
            refused(o, "an address of the API server")
        })
        .await?;

    list(&cluster, "fd00:ec2::254")
        .await
        .expect_err("the slice is of IPv4");
    list(&cluster, "168.63.129.16").await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "mallory", "web", |o| {
            refused(o, "a metadata service")
        })
        .await?;
    // No label permits this address as a backend.
    label(&cluster, json!("any")).await?;
    list(&cluster, BACKEND).await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "mallory", "web", fine)
        .await?;
    list(&cluster, "168.63.129.16").await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "mallory", "web", |o| {
            refused(o, "a metadata service")
        })
        .await?;
    Ok(())
}

/// Names a pod for an address in mallory's slice.
async fn name(cluster: &Cluster, address: &str, target: Value) -> Result<()> {
    let slices = cluster
        .server
        .api(SLICE, "EndpointSlice", "mallory")
        .await?;
    let listing =
        Patch::Merge(json!({"endpoints": [{"addresses": [address], "targetRef": target}]}));
    slices.patch("web-1", &Default::default(), &listing).await?;
    Ok(())
}

fn pod_named(namespace: &str, name: &str) -> Value {
    json!({"kind": "Pod", "namespace": namespace, "name": name})
}

/// Alice's backend, which accepts connections from the Envoys only, is not reached by anybody
/// else's hostname.
#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn an_endpoint_is_the_pod_that_it_names_or_nothing_is_sent_there() -> Result<()> {
    let alices = "198.18.0.41";
    let mallorys = "198.18.0.42";
    let next = "198.18.0.43";
    let node = "198.18.0.44";
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let port = free_port()?;
    let edge = SocketAddr::from(([127, 0, 0, 1], port));
    let alice = Echo::start_on("alice", alices).await?;
    let mut backends = vec![Echo::start_at("mallory", mallorys, alice.address().port()).await?];
    for (tenant_name, address) in [("alice", alices), ("mallory", mallorys)] {
        let host = format!("web.{tenant_name}.example.org");
        tenant(&cluster, tenant_name, "gatewright", port, &[&host]).await?;
        let labels =
            Patch::Merge(json!({"metadata": {"labels": {"gatewright.io/endpoints": null}}}));
        let namespaces = server.api("v1", "Namespace", "").await?;
        namespaces
            .patch(tenant_name, &Default::default(), &labels)
            .await?;
        let [service, mut slice, _] = service(tenant_name, "web", alice.address().port());
        slice["endpoints"][0]["addresses"] = json!([address]);
        for object in [service, slice, pod(tenant_name, "web-1", address)] {
            server.put(object).await?;
        }
    }
    let served = async |host: &str, by: &str| {
        let until = Instant::now() + LIMIT;
        while !answer(edge, host).await.is_ok_and(|name| name == by) {
            ensure!(
                Instant::now() < until,
                "{host} is not answered by {by}: {:?}",
                answer(edge, host).await
            );
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    served("web.alice.example.org", "alice").await?;
    served("web.mallory.example.org", "mallory").await?;

    let refused = |o: &Value, why: &str| {
        let (reason, text) = told(&o["status"]["parents"][0], "ResolvedRefs");
        reason == "EndpointNotPermitted" && text.contains(why) && !text.contains("alice")
    };
    let nobodys = format!(
        "{alices}:{} (not the address of a running pod",
        alice.address().port()
    );
    let untold = async |why: &str| -> Result<()> {
        cluster
            .until(GATEWAY, "HTTPRoute", "mallory", "web", |o| refused(o, why))
            .await?;
        // No endpoint is left.
        let until = Instant::now() + LIMIT;
        loop {
            let status = Probe::https(edge, "web.mallory.example.org")
                .send()
                .await?
                .status;
            if status == 503 {
                return Ok(());
            }
            ensure!(Instant::now() < until, "answered {status}");
            sleep(Duration::from_millis(50)).await;
        }
    };
    // Her own pod, which has another address; alice's pod; a pod that has ended; another manager of
    // the slice.
    let mut ended = pod("mallory", "ended", alices);
    ended["status"]["phase"] = json!("Succeeded");
    server.put(ended).await?;
    let slices = server.api(SLICE, "EndpointSlice", "mallory").await?;
    let managed = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}}});
    slices
        .patch("web-1", &Default::default(), &Patch::Merge(&managed))
        .await?;
    for target in [
        pod_named("mallory", "web-1"),
        pod_named("alice", "web-1"),
        pod_named("mallory", "ended"),
        Value::Null,
    ] {
        name(&cluster, mallorys, pod_named("mallory", "web-1")).await?;
        served("web.mallory.example.org", "mallory").await?;
        name(&cluster, alices, target).await?;
        untold(&nobodys).await?;
    }
    // A node's address is refused, also for a pod on its host network.
    server
        .put(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {"addresses": [{"type": "InternalIP", "address": node}]}}),
        )
        .await?;
    server.put(pod("mallory", "hosted", node)).await?;
    name(&cluster, node, pod_named("mallory", "hosted")).await?;
    untold("(the address of a node)").await?;
    // The label of the namespace permits others.
    label(&cluster, json!("any")).await?;
    name(&cluster, mallorys, Value::Null).await?;
    served("web.mallory.example.org", "mallory").await?;
    label(&cluster, Value::Null).await?;
    untold("(not the address of a running pod").await?;
    served("web.alice.example.org", "alice").await?;

    // Alice's pod is replaced; her slice shows it before her pod does. No request fails, also while
    // the controller restarts.
    server
        .put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-2", "namespace": "alice"},
            "spec": pod("alice", "web-2", next)["spec"]}))
        .await?;
    backends.push(Echo::start_at("next", next, alice.address().port()).await?);
    let slices = server.api(SLICE, "EndpointSlice", "alice").await?;
    let listing =
        json!({"endpoints": [{"addresses": [next], "targetRef": pod_named("alice", "web-2")}]});
    slices
        .patch("web-1", &Default::default(), &Patch::Merge(&listing))
        .await?;
    for _ in 0..20 {
        assert_eq!(
            answer(edge, "web.alice.example.org").await?,
            "alice",
            "her pod is still there"
        );
    }
    server.put(pod("alice", "web-2", next)).await?;
    let until = Instant::now() + LIMIT;
    while answer(edge, "web.alice.example.org").await? != "next" {
        ensure!(Instant::now() < until, "the new pod is never used");
    }
    drop(controller);
    let mut controller = cluster.controller("two")?;
    let until = Instant::now() + LIMIT;
    let ready = async {
        controller.line("xDS at").await?;
        cluster.quiet().await.map(drop)
    };
    tokio::pin!(ready);
    loop {
        tokio::select! {
            ready = &mut ready => break ready?,
            name = answer(edge, "web.alice.example.org") => ensure!(name? == "next" && Instant::now() < until),
        }
    }
    untold("(not the address of a running pod").await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
