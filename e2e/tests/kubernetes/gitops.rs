//! The health that Argo CD and Flux find for our kinds by `deploy/gitops`, in their own languages,
//! from statuses as the program writes them.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use e2e::apiserver::ApiServer;
use e2e::apiserver::manifests::documents;
use e2e::cluster::{Cluster, tls_secret};
use e2e::deploy::folder;
use e2e::tenants::{self, GATEWAY, TENANT, namespace, tenant, until_ready};
use serde_json::{Value, json};

use super::installed::tool;
use super::release::output;

const OURS: &str = "gatewright.io/v1alpha1";

/// The rules of `deploy/gitops`.
struct Rules {
    argo_cd: Value,
    flux: Value,
}

impl Rules {
    fn read() -> Result<Self> {
        let file = |name: &str| -> Result<Value> {
            let text = std::fs::read_to_string(folder().join("gitops").join(name))?;
            documents(&text)?.pop().context("a document")
        };
        Ok(Self {
            argo_cd: file("argo-cd.yaml")?["data"].take(),
            flux: file("flux.yaml")?["spec"]["healthCheckExprs"].take(),
        })
    }

    /// Requires what both find, and returns the message for Argo CD.
    fn find(&self, object: &Value, [argo_cd, flux]: [&str; 2]) -> Result<String> {
        let version = object["apiVersion"].as_str().context("a version")?;
        let group = version.split('/').next().context("a group")?;
        let kind = object["kind"].as_str().context("a kind")?;
        let script = &self.argo_cd[format!("resource.customizations.health.{group}_{kind}")];
        let found = evaluate(object, &["lua", script.as_str().context("a script")?])?;
        ensure!(found.starts_with(argo_cd), "{kind}: {found}: {object}");
        let rules = self.flux.as_array().into_iter().flatten();
        let rule = rules
            .clone()
            .find(|rule| rule["kind"] == kind && rule["apiVersion"] == version)
            .context("an expression")?;
        let text = |field: &str| rule[field].as_str().context("an expression");
        let found_by_flux = evaluate(object, &["cel", text("failed")?, text("current")?])?;
        ensure!(
            found_by_flux.starts_with(flux),
            "{kind}: {found_by_flux}: {object}"
        );
        Ok(found)
    }
}

/// What the language says of an object.
fn evaluate(object: &Value, rule: &[&str]) -> Result<String> {
    let mut running = Command::new(tool("gitops-health")?)
        .args(rule)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = running.stdin.take().context("its input")?;
    input.write_all(object.to_string().as_bytes())?;
    drop(input);
    let out = running.wait_with_output()?;
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{rule:?}: {why}");
    Ok(String::from_utf8(out.stdout)?)
}

const HEALTHY: [&str; 2] = ["Healthy", "Current"];
const PROGRESSING: [&str; 2] = ["Progressing", "InProgress"];
const DEGRADED: [&str; 2] = ["Degraded", "Failed"];

/// The object as the API server has it.
async fn read(cluster: &Cluster, version: &str, kind: &str, name: [&str; 2]) -> Result<Value> {
    let objects = cluster.server.api(version, kind, name[0]).await?;
    let mut object = serde_json::to_value(objects.get(name[1]).await?)?;
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    Ok(object)
}

/// The first condition of a policy's first ancestor.
fn accepted(policy: &Value, status: &str) -> bool {
    policy["status"]["ancestors"][0]["conditions"][0]["status"] == status
}

#[tokio::test]
#[ignore = "needs Kubernetes and gitops-health: e2e/tools install kubernetes gateway-api cert-manager-crds gitops-health"]
async fn policies_are_healthy_when_they_are_in_effect() -> Result<()> {
    let rules = Rules::read()?;
    let cluster = tenants::cluster().await?;
    let server = &cluster.server;
    let policy = |kind: &str, name: &str, setting: Value| {
        let target =
            json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
        let mut object = json!({"apiVersion": OURS, "kind": kind, "metadata": {"name": name, "namespace": "default"},
            "spec": setting});
        object["spec"]["targetRefs"] = json!([target]);
        object
    };
    let compression = json!({"compression": {}});
    let allow = json!({"clientAddress": {"allow": ["192.0.2.0/24"]}});
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright",
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}))
        .await?;
    for object in [
        policy("TrafficPolicy", "a-first", compression.clone()),
        policy("AccessPolicy", "a-first", allow),
    ] {
        server.put(object).await?;
    }
    for kind in ["TrafficPolicy", "AccessPolicy"] {
        let undecided = read(&cluster, OURS, kind, ["default", "a-first"]).await?;
        rules.find(&undecided, PROGRESSING)?;
    }

    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    for kind in ["TrafficPolicy", "AccessPolicy"] {
        let place = (OURS, kind, "default");
        let mut good = cluster
            .until(place.0, place.1, place.2, "a-first", |o| {
                accepted(o, "True")
            })
            .await?;
        good["apiVersion"] = json!(OURS);
        good["kind"] = json!(kind);
        rules.find(&good, HEALTHY)?;
        // A change that nobody has judged yet.
        good["metadata"]["generation"] = json!(7);
        rules.find(&good, PROGRESSING)?;
    }
    server
        .put(policy("TrafficPolicy", "b-second", compression))
        .await?;
    let mut second = cluster
        .until(OURS, "TrafficPolicy", "default", "b-second", |o| {
            accepted(o, "False")
        })
        .await?;
    second["apiVersion"] = json!(OURS);
    second["kind"] = json!("TrafficPolicy");
    let why = rules.find(&second, DEGRADED)?;
    ensure!(why.contains("takes precedence"), "{why}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes"]
async fn the_configuration_of_argo_cd_gets_the_rules() -> Result<()> {
    let server = ApiServer::start().await?;
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-cm", "namespace": "argocd"},
            "data": {"url": "https://argocd.example.org"}}),
    ] {
        server.put(object).await?;
    }
    let file = folder().join("gitops/argo-cd.yaml");
    let patch = ["patch", "configmap", "argocd-cm", "--patch-file"];
    output(
        Command::new(tool("kubectl")?)
            .env(
                "KUBECONFIG",
                server.kubeconfig("admin", &["system:masters"])?,
            )
            .args(["-n", "argocd"])
            .args(patch)
            .arg(file),
    )?;
    let patched = server
        .api("v1", "ConfigMap", "argocd")
        .await?
        .get("argocd-cm")
        .await?;
    let mut expected = Rules::read()?.argo_cd;
    expected["url"] = json!("https://argocd.example.org");
    assert_eq!(patched.data["data"], expected);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and gitops-health: e2e/tools install"]
async fn tenant_gateways_are_healthy_when_they_are_ready() -> Result<()> {
    let rules = Rules::read()?;
    let cluster = tenants::cluster().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let apex = "own.example.org";
    namespace(server, "tenant-own", apex).await?;
    let spec = json!({"apex": apex, "certMode": "existingSecret", "wildcardSecretRef": {"name": "wildcard"},
        "gatewayClassName": "gatewright"});
    server.put(tenant("tenant-own", spec)).await?;
    let now = async || {
        read(
            &cluster,
            TENANT,
            "TenantGateway",
            ["tenant-own", "cozystack"],
        )
        .await
    };
    rules.find(&now().await?, PROGRESSING)?;

    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    until_ready(&cluster, "tenant-own", "WildcardSecretNotFound").await?;
    let why = rules.find(&now().await?, DEGRADED)?;
    ensure!(why.contains("create it, or name another"), "{why}");
    let wildcard = tls_secret("tenant-own", "wildcard", &[apex, "*.own.example.org"])?;
    server.put(wildcard).await?;
    until_ready(&cluster, "tenant-own", "GatewayNotProgrammed").await?;
    rules.find(&now().await?, PROGRESSING)?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    until_ready(&cluster, "tenant-own", "Reconciled").await?;
    rules.find(&now().await?, HEALTHY)?;

    // Somebody else has the name of its Gateway.
    let foreign = "tenant-foreign";
    namespace(server, foreign, "foreign.example.org").await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "cozystack", "namespace": foreign},
            "spec": {"gatewayClassName": "other",
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}))
        .await?;
    let spec = json!({"apex": "foreign.example.org", "gatewayClassName": "gatewright"});
    server.put(tenant(foreign, spec)).await?;
    until_ready(&cluster, foreign, "ForeignObject").await?;
    let object = read(&cluster, TENANT, "TenantGateway", [foreign, "cozystack"]).await?;
    let why = rules.find(&object, DEGRADED)?;
    ensure!(why.contains("Gateway"), "{why}");
    Ok(())
}
