//! Addresses by where they are to be reachable from (GEP-5093), with Services of a real API server.

use anyhow::{Context, Result};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{Cluster, condition, is_true};
use e2e::helm::Helm;
use kube::api::Patch;
use serde_json::{Value, json};

use super::{GATEWAY, dedicated, give, told};

const BALANCED: &str = "192.0.2.20";

async fn gateway(cluster: &Cluster, namespace: &str, addresses: &Value) -> Result<()> {
    cluster
        .server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
        .await?;
    cluster
        .server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": namespace},
            "spec": {"gatewayClassName": "own", "addresses": addresses,
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}))
        .await?;
    Ok(())
}

/// Waits for the addresses of a Gateway, and for `AddressesAssigned` with this reason.
async fn assigned(
    cluster: &Cluster,
    namespace: &str,
    addresses: &Value,
    reason: &str,
) -> Result<Value> {
    cluster
        .until(GATEWAY, "Gateway", namespace, "edge", |gateway| {
            let status = &gateway["status"];
            let there = status["addresses"].as_array().cloned().unwrap_or_default();
            json!(there) == *addresses && told(status, "AddressesAssigned").0 == reason
        })
        .await
}

fn address(value: &Value, routability: &str) -> Value {
    json!({"type": "IPAddress", "value": value, "routability": routability})
}

async fn service(cluster: &Cluster, namespace: &str, kind: &str) -> Result<Value> {
    cluster
        .until("v1", "Service", namespace, "edge-own", |o| {
            o["spec"]["type"] == kind
        })
        .await
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn an_address_is_reachable_from_where_it_is_asked_for_and_from_nowhere_else() -> Result<()> {
    let server = ApiServer::with(&[Definitions::ExperimentalGatewayApi]).await?;
    let cluster = Cluster::over(server).await?;
    Helm::new(None)?
        .grant_experimental_channel(&cluster.server)
        .await?;
    dedicated(&cluster).await?;
    let mut controller =
        cluster.controller_with("one", &["--set", "gatewayApi.channel=Experimental"])?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let claims = |class: &Value| {
        let all = class["status"]["supportedFeatures"]
            .as_array()
            .into_iter()
            .flatten();
        let all: Vec<&str> = all.filter_map(|feature| feature["name"].as_str()).collect();
        [
            "GatewayAddressRoutability",
            "GatewayAddressRoutabilityCluster",
            "GatewayListenerFilters",
        ]
        .iter()
        .all(|name| all.contains(name))
    };
    cluster
        .until(GATEWAY, "GatewayClass", "", "own", claims)
        .await?;

    // From within the cluster alone: nothing that a load balancer would give an address to.
    gateway(
        &cluster,
        "routable-within",
        &json!([{"type": "IPAddress", "routability": "Cluster"}]),
    )
    .await?;
    let made = service(&cluster, "routable-within", "ClusterIP").await?;
    let within = address(&made["spec"]["clusterIP"], "Cluster");
    let status = assigned(
        &cluster,
        "routable-within",
        &json!([within]),
        "AddressesAssigned",
    )
    .await?;
    assert!(
        is_true(&status["status"], "AddressesAssigned"),
        "{status:#}"
    );
    cluster
        .until(GATEWAY, "Gateway", "routable-within", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;

    // Both: what there is of them is served, and told.
    gateway(
        &cluster,
        "routable-both",
        &json!([{"routability": "Cluster"}, {"type": "IPAddress"}]),
    )
    .await?;
    let made = service(&cluster, "routable-both", "LoadBalancer").await?;
    let within = address(&made["spec"]["clusterIP"], "Cluster");
    let partly = assigned(
        &cluster,
        "routable-both",
        &json!([within]),
        "PartiallyAssigned",
    )
    .await?;
    assert!(
        told(&partly["status"], "AddressesAssigned")
            .1
            .contains("spec.addresses[1]"),
        "{partly:#}"
    );
    cluster
        .until(GATEWAY, "Gateway", "routable-both", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    give(&cluster, "routable-both", "edge-own", BALANCED).await?;
    let both = json!([within, address(&json!(BALANCED), "")]);
    assigned(&cluster, "routable-both", &both, "AddressesAssigned").await?;

    // It is no longer to be reached from outside: its Service says so before its status does.
    let gateways = cluster
        .server
        .api(GATEWAY, "Gateway", "routable-both")
        .await?;
    let only = json!({"spec": {"addresses": [{"type": "IPAddress", "routability": "Cluster"}]}});
    gateways
        .patch("edge", &Default::default(), &Patch::Merge(&only))
        .await?;
    service(&cluster, "routable-both", "ClusterIP").await?;
    assigned(
        &cluster,
        "routable-both",
        &json!([within]),
        "AddressesAssigned",
    )
    .await?;

    // A certain one, which the API server gives once.
    let asked = json!("10.96.200.77");
    gateway(
        &cluster,
        "routable-certain",
        &json!([{"routability": "Cluster", "value": asked}]),
    )
    .await?;
    assigned(
        &cluster,
        "routable-certain",
        &json!([address(&asked, "Cluster")]),
        "AddressesAssigned",
    )
    .await?;

    // An impossible request is not replaced by something else, and nothing is served.
    for (namespace, request) in [
        (
            "routable-outside",
            json!({"routability": "Cluster", "value": "192.0.2.77"}),
        ),
        (
            "routable-unknown",
            json!({"routability": "example.org/Wan"}),
        ),
        (
            "routable-reserved",
            json!({"routability": "testing.x-k8s.io/other"}),
        ),
    ] {
        gateway(&cluster, namespace, &json!([request])).await?;
        let nowhere = assigned(&cluster, namespace, &json!([]), "NotAssigned").await?;
        assert_eq!(
            told(&nowhere["status"], "Programmed").0,
            "AddressNotAssigned",
            "{nowhere:#}"
        );
        assert!(
            cluster
                .server
                .api("v1", "Service", namespace)
                .await?
                .get_opt("edge-own")
                .await?
                .is_none()
        );
    }

    // Without any guarantee: as the class gives it, and said in so many words.
    for (namespace, addresses, said) in [
        ("routable-any", json!([]), ""),
        (
            "routable-sentinel",
            json!([{"routability": "testing.x-k8s.io/sentinel"}]),
            "testing.x-k8s.io/sentinel",
        ),
    ] {
        gateway(&cluster, namespace, &addresses).await?;
        service(&cluster, namespace, "LoadBalancer").await?;
        let none = assigned(&cluster, namespace, &json!([]), "NotAssigned").await?;
        assert_eq!(
            told(&none["status"], "Programmed").0,
            "AddressNotAssigned",
            "{none:#}"
        );
        give(&cluster, namespace, "edge-own", BALANCED).await?;
        assigned(
            &cluster,
            namespace,
            &json!([address(&json!(BALANCED), said)]),
            "AddressesAssigned",
        )
        .await?;
    }
    let quiet = cluster.quiet().await?;
    let touched = json!({"metadata": {"annotations": {"example.org/touched": "1"}}});
    gateways
        .patch("edge", &Default::default(), &Patch::Merge(&touched))
        .await?;
    cluster.quiet().await?;
    // One Service is refused, and tried again now and then.
    let writes = cluster.writes()?;
    let others: Vec<_> = writes[quiet..]
        .iter()
        .filter(|write| write.object != "routable-outside/edge-own")
        .collect();
    assert!(
        others.is_empty(),
        "a steady state writes nothing: {others:?}"
    );
    let told = gateways.get("edge").await?;
    let condition = condition(&told.data["status"], "AddressesAssigned")
        .context("a condition")?
        .clone();
    assert_eq!(condition["status"], "True", "{condition}");
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
