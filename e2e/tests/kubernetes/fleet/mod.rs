//! The fleets of our own class on a real API server with a real Envoy: Gateways that share
//! addresses, and parameters that are missing, invalid and corrected.

use e2e::apiserver::Definitions;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use e2e::cluster::{Cluster, condition, service, tls_secret};
use e2e::probe::Probe;
use serde_json::{Value, json};

mod admitted;
pub(crate) mod apart;
mod contest;
mod dedicated;
mod endpoints;
mod kinds;
mod named;
mod ownership;
mod parameters;
mod ports;
mod record_quota;
mod refusals;
mod round_trips;
mod routability;
mod shared;
mod unrecorded;

pub(crate) const GATEWAY: &str = "gateway.networking.k8s.io/v1";

fn class(name: &str, parameters: Option<(&str, &str)>) -> Value {
    let mut spec = json!({"controllerName": "gatewright.io/gateway-controller"});
    if let Some((kind, name)) = parameters {
        spec["parametersRef"] =
            json!({"group": "gatewright.io", "kind": kind, "namespace": "default", "name": name});
    }
    json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": name}, "spec": spec})
}

fn parameters(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

/// A tenant: a namespace with a Gateway, a certificate and a route for its hosts.
pub(crate) async fn tenant(
    cluster: &Cluster,
    name: &str,
    class: &str,
    port: u16,
    hosts: &[&str],
) -> Result<()> {
    let server = &cluster.server;
    // Backends and Envoys have one address here, as on the host network of a node.
    let labels = json!({"gatewright.io/endpoints": "any"});
    server.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})).await?;
    server.put(tls_secret(name, "cert", hosts)?).await?;
    server.put(gateway(name, class, port, hosts)).await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": name},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": hosts,
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
        .await?;
    Ok(())
}

fn gateway(namespace: &str, class: &str, port: u16, hosts: &[&str]) -> Value {
    let listeners: Vec<Value> = hosts
        .iter()
        .enumerate()
        .map(|(index, host)| {
            json!({"name": format!("l{index}"), "protocol": "HTTPS", "port": port, "hostname": host,
            "tls": {"certificateRefs": [{"name": "cert"}]}})
        })
        .collect();
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": namespace},
        "spec": {"gatewayClassName": class, "listeners": listeners}})
}

/// Returns the backend that answers for a host.
async fn answer(address: SocketAddr, host: &str) -> Result<String> {
    let answer = Probe::https(address, host).send().await?;
    let told: Value = serde_json::from_slice(&answer.body)?;
    Ok(told["name"]
        .as_str()
        .context("an echo names itself")?
        .to_owned())
}

/// Makes the Service of the Envoys, with an endpoint in place of the DaemonSet's pods.
async fn envoys(cluster: &Cluster) -> Result<()> {
    for mut object in service("gatewright-system", "gatewright-envoy", 80) {
        object["metadata"]["labels"]["app.kubernetes.io/component"] = json!("envoy");
        cluster.server.put(object).await?;
    }
    Ok(())
}

/// Returns the Envoys' port that a Gateway's Service leads to.
pub(crate) fn target(service: &Value) -> Option<u16> {
    u16::try_from(service["spec"]["ports"][0]["targetPort"].as_u64()?).ok()
}

/// Installs our own CRDs, and a class `own` of the dedicated fleet, with the Envoys behind their
/// Service.
///
/// The port at which Envoys serve a Gateway of it is derived from its namespace, and concurrent
/// tests share this machine's ports: each has namespaces of its own.
pub(crate) async fn dedicated(cluster: &Cluster) -> Result<()> {
    cluster.server.install(Definitions::Ours).await?;
    cluster
        .server
        .put(parameters("own", json!({"fleet": "Dedicated"})))
        .await?;
    cluster
        .server
        .put(class("own", Some(("GatewayParameters", "own"))))
        .await?;
    envoys(cluster).await
}

/// Acts as the controller that assigns addresses of load balancers.
pub(crate) async fn give(
    cluster: &Cluster,
    namespace: &str,
    service: &str,
    ip: &str,
) -> Result<()> {
    let services = cluster.server.api("v1", "Service", namespace).await?;
    let given = json!({"status": {"loadBalancer": {"ingress": [{"ip": ip}]}}});
    services
        .patch_status(
            service,
            &Default::default(),
            &kube::api::Patch::Merge(&given),
        )
        .await?;
    Ok(())
}

/// Patches a Gateway.
async fn change(cluster: &Cluster, namespace: &str, patch: Value) -> Result<()> {
    let gateways = cluster.server.api(GATEWAY, "Gateway", namespace).await?;
    gateways
        .patch(
            "edge",
            &Default::default(),
            &kube::api::Patch::Merge(&patch),
        )
        .await?;
    Ok(())
}

/// Returns the reason and the message of a condition.
fn told(status: &Value, kind: &str) -> (String, String) {
    let text = |field: &str| {
        condition(status, kind)
            .and_then(|c| c[field].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    (text("reason"), text("message"))
}
