//! A cluster with TenantGateways and cert-manager's CRDs, and the controller of TenantGateways. The
//! test plays the controller of the Gateways' class.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::apiserver::{ApiServer, Definitions, Request};
use crate::cluster::Cluster;
use crate::hex::hex;
use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

/// `apiVersion` of the Gateway API.
pub const GATEWAY: &str = "gateway.networking.k8s.io/v1";
/// `apiVersion` of cert-manager.
pub const CERT_MANAGER: &str = "cert-manager.io/v1";
/// `apiVersion` of TenantGateways.
pub const TENANT: &str = "gateway.cozystack.io/v1alpha1";
/// The label of a namespace that names the namespace whose Gateway it uses.
pub const OWNER: &str = "namespace.cozystack.io/gateway";
/// The label with a namespace's apex.
pub const HOST: &str = "namespace.cozystack.io/host";
/// The annotation of labels that the controller wrote.
pub const ATTACHED: &str = "cozystack.io/gateway-attached-by";
/// The controller name under which routes have the status of their claims.
pub const CLAIMS: &str = "gateway.cozystack.io/tenantgateway-controller";

/// The kinds of a cluster with TenantGateways.
pub const DEFINITIONS: [Definitions; 3] = [
    Definitions::GatewayApi,
    Definitions::CertManager,
    Definitions::Ours,
];

const LIMIT: Duration = Duration::from_secs(180);
/// The kinds of derived objects.
const KINDS: [(&str, &str); 5] = [
    (GATEWAY, "Gateway"),
    (GATEWAY, "ListenerSet"),
    (GATEWAY, "HTTPRoute"),
    (CERT_MANAGER, "Issuer"),
    (CERT_MANAGER, "Certificate"),
];

/// Starts an API server with all CRDs.
pub async fn cluster() -> Result<Cluster> {
    let mut server = ApiServer::with(&DEFINITIONS).await?;
    server.start_controllers()?;
    Cluster::over(server).await
}

/// Starts the same with the controllers of pods, for a kubelet.
pub async fn cluster_with_pods() -> Result<Cluster> {
    let mut server = ApiServer::with(&DEFINITIONS).await?;
    server.start_controllers_of_pods()?;
    Cluster::over(server).await
}

/// Makes a namespace with its own apex and Gateway.
pub async fn namespace(server: &ApiServer, name: &str, apex: &str) -> Result<()> {
    member(server, name, name, apex).await
}

/// Makes a namespace that inherits the Gateway of another.
pub async fn member(server: &ApiServer, name: &str, owner: &str, apex: &str) -> Result<()> {
    let labels = json!({OWNER: owner, HOST: apex});
    server.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})).await?;
    Ok(())
}

/// A TenantGateway, named as Cozystack's chart names it.
pub fn tenant(namespace: &str, spec: Value) -> Value {
    json!({"apiVersion": TENANT, "kind": "TenantGateway",
        "metadata": {"name": "cozystack", "namespace": namespace}, "spec": spec})
}

/// A route to the Gateway of `owner`.
pub fn route(namespace: &str, name: &str, owner: &str, hostnames: &[&str]) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [{"name": "cozystack", "namespace": owner}], "hostnames": hostnames,
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

/// Returns the name of the listener of one host, as on Cozystack's page of its gateway.
pub fn listener_name(host: &str) -> String {
    format!("https-{}", short(host))
}

/// Returns the name of the Certificate of one host and of its Secret, for TenantGateway
/// `cozystack`.
pub fn certificate_name(host: &str) -> String {
    format!("cozystack-{}-tls", short(host))
}

/// Returns the first label of a hostname and eight digits of its SHA-256.
fn short(host: &str) -> String {
    let label = host.split('.').next().unwrap_or_default();
    let hash = Sha256::digest(host.as_bytes());
    format!("{label}-{}", hex(&hash[..4]))
}

/// Returns kind and name of everything in a namespace that a TenantGateway owns.
pub async fn owned(server: &ApiServer, namespace: &str) -> Result<BTreeSet<String>> {
    Ok(objects(server, namespace).await?.iter().map(id).collect())
}

/// Returns everything in a namespace that a TenantGateway owns, without fields that differ between
/// two runs.
pub async fn objects(server: &ApiServer, namespace: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for (api_version, kind) in KINDS {
        let api = server.api(api_version, kind, namespace).await?;
        for object in api.list(&ListParams::default()).await? {
            let mut value = serde_json::to_value(&object)?;
            let owners = value["metadata"]["ownerReferences"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            if owners.iter().any(|owner| owner["kind"] == "TenantGateway") {
                value["kind"] = json!(kind);
                all.push(value);
            }
        }
    }
    Ok(all)
}

/// Returns kind and name of an object, as the tests write them: `Gateway cozystack`.
pub fn id(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{} {}",
        text(&object["kind"]),
        text(&object["metadata"]["name"])
    )
}

/// Waits until exactly these objects are owned by a TenantGateway of the namespace.
pub async fn until_owned(server: &ApiServer, namespace: &str, expected: &[&str]) -> Result<()> {
    let expected: BTreeSet<String> = expected.iter().map(|text| (*text).to_owned()).collect();
    let deadline = Instant::now() + LIMIT;
    loop {
        let found = owned(server, namespace).await?;
        if found == expected {
            return Ok(());
        }
        assert!(
            Instant::now() < deadline,
            "{namespace} has {found:#?}\ninstead of {expected:#?}"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until something holds.
pub async fn until(what: &str, good: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !good().await? {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Plays the controller of another class: sets a Gateway or ListenerSet to accepted and programmed.
pub async fn program(server: &ApiServer, kind: &str, namespace: &str, name: &str) -> Result<()> {
    let api = server.api(GATEWAY, kind, namespace).await?;
    let object = api.get(name).await?;
    let conditions: Vec<Value> = ["Accepted", "Programmed"]
        .into_iter()
        .map(|kind| {
            json!({"type": kind, "status": "True", "reason": kind, "message": "",
                "observedGeneration": object.metadata.generation, "lastTransitionTime": "2026-01-01T00:00:00Z"})
        })
        .collect();
    let listeners = object.data["spec"]["listeners"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let listener = |listener: &Value| json!({"name": listener["name"], "attachedRoutes": 0, "supportedKinds": [], "conditions": conditions});
    let status = json!({"conditions": conditions, "listeners": listeners.iter().map(listener).collect::<Vec<_>>()});
    api.patch_status(
        name,
        &PatchParams::default(),
        &Patch::Merge(json!({"status": status})),
    )
    .await?;
    Ok(())
}

/// Returns the `Ready` condition of a TenantGateway.
pub fn ready(object: &Value) -> Option<&Value> {
    crate::cluster::condition(&object["status"], "Ready")
}

/// Waits until the TenantGateway of a namespace has this reason, and returns its `Ready`.
pub async fn until_ready(cluster: &Cluster, namespace: &str, reason: &str) -> Result<Value> {
    let found = cluster
        .until(TENANT, "TenantGateway", namespace, "cozystack", |object| {
            ready(object).is_some_and(|ready| {
                ready["reason"] == reason
                    && ready["observedGeneration"] == object["metadata"]["generation"]
            })
        })
        .await?;
    ready(&found).cloned().context("it has one")
}

/// Waits until the controller is quiet, and returns the writes since.
pub async fn quiet(cluster: &Cluster, since: usize) -> Result<Vec<Request>> {
    cluster.quiet().await?;
    Ok(cluster.writes()?.split_off(since))
}

/// Makes four writes like those of a data plane, cert-manager, other controllers and people in a
/// namespace: equal statuses with a new time, status entries of their own, annotations.
pub async fn rewrite(server: &ApiServer, space: &str, number: usize) -> Result<()> {
    let theirs = PatchParams {
        field_manager: Some("theirs".to_owned()),
        ..PatchParams::default()
    };
    let time = format!("2026-01-01T00:{:02}:{:02}Z", number / 60 % 60, number % 60);
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "Theirs", "message": number.to_string(),
            "lastTransitionTime": time, "observedGeneration": 1})
    };
    let addresses = json!([{"type": "IPAddress", "value": format!("10.0.0.{}", number % 250)}]);
    let patch = Patch::Merge(json!({"status": {"addresses": addresses}}));
    server
        .api(GATEWAY, "Gateway", space)
        .await?
        .patch_status("cozystack", &theirs, &patch)
        .await?;

    let routes = server.api(GATEWAY, "HTTPRoute", space).await?;
    let all = routes.list(&ListParams::default()).await?.items;
    if let Some(route) = all.get(number % all.len().max(1)) {
        let mut parents = route.data["status"]["parents"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        parents.retain(|parent| parent["controllerName"] != "theirs.org/controller");
        parents.push(
            json!({"controllerName": "theirs.org/controller", "parentRef": {"name": "cozystack"},
            "conditions": [condition("Accepted")]}),
        );
        let patch = Patch::Merge(json!({"status": {"parents": parents}}));
        routes
            .patch_status(&route.name_any(), &theirs, &patch)
            .await?;
    }
    let certificates = server.api(CERT_MANAGER, "Certificate", space).await?;
    let all = certificates.list(&ListParams::default()).await?.items;
    if let Some(certificate) = all.get(number % all.len().max(1)) {
        let patch = Patch::Merge(json!({"status": {"conditions": [condition("Issuing")]}}));
        certificates
            .patch_status(&certificate.name_any(), &theirs, &patch)
            .await?;
    }
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"theirs.org/seen": time}}}));
    server
        .api("v1", "Namespace", "")
        .await?
        .patch(space, &theirs, &patch)
        .await?;
    Ok(())
}
