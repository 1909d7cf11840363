//! CustomResourceDefinitions of an older version, in a cluster with objects of users:
//! `gatewright crds apply` and an upgrade of the chart bring those of this version.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::manifests::documents;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::gatewright::Gatewright;
use e2e::helm::{Helm, NAMESPACE, chart};
use e2e::kubelet::Kubelet;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::pods::programs;

const LIMIT: Duration = Duration::from_secs(180);
const CRD: (&str, &str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "");
const POLICIES: &str = "trafficpolicies.gatewright.io";
const VERSION: &str = "gatewright.io/version";

/// A cluster whose TrafficPolicies have no field `compression`, and a policy of a user.
struct Older {
    server: ApiServer,
    kubeconfig: PathBuf,
}

impl Older {
    async fn start() -> Result<Self> {
        let server = ApiServer::with(&[Definitions::GatewayApi]).await?;
        let kubeconfig = server.kubeconfig("admin", &["system:masters"])?;
        Ok(Self { server, kubeconfig })
    }

    /// Runs `gatewright crds apply`; returns whether it succeeded, and its output.
    fn apply(&self) -> Result<(bool, String)> {
        let kubeconfig = self.kubeconfig.display().to_string();
        let out = Gatewright::run(&["crds", "apply", "--kubeconfig", &kubeconfig])?;
        let text = [out.stdout, out.stderr].concat();
        Ok((out.status.success(), String::from_utf8(text)?))
    }

    async fn policies(&self) -> Result<Api<DynamicObject>> {
        self.server
            .api("gatewright.io/v1alpha1", "TrafficPolicy", "default")
            .await
    }

    /// Makes a policy of a user, whose field `compression` the older definition does not have.
    async fn make_policy(&self) -> Result<()> {
        let policy = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
            "metadata": {"name": "users", "namespace": "default"},
            "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}],
                "rateLimit": [{"limit": {"requests": 10, "per": "Second"}, "by": {"type": "Everyone"}}]}});
        self.server.put(policy).await?;
        ensure!(
            self.compress().await?.is_null(),
            "the older definition has the field"
        );
        Ok(())
    }

    /// Sets the newer field of the policy once, and returns what the API server stored.
    async fn compress(&self) -> Result<Value> {
        let patch = json!({"spec": {"compression": {"types": ["text/html"]}}});
        let params = PatchParams::default();
        let policy = self
            .policies()
            .await?
            .patch("users", &params, &Patch::Merge(&patch))
            .await?;
        ensure!(
            policy.data["spec"]["rateLimit"][0]["limit"]["requests"] == 10,
            "the rest of the policy stays: {}",
            policy.data
        );
        Ok(policy.data["spec"]["compression"].clone())
    }

    async fn definition(&self, name: &str) -> Result<DynamicObject> {
        Ok(self
            .server
            .api(CRD.0, CRD.1, CRD.2)
            .await?
            .get(name)
            .await?)
    }

    async fn annotate(&self, name: &str, version: Option<&str>) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {VERSION: version}}});
        let definitions = self.server.api(CRD.0, CRD.1, CRD.2).await?;
        definitions
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }
}

/// The definitions of this version, without the field `compression` of TrafficPolicies.
fn older_definitions() -> Result<Vec<Value>> {
    let mut definitions = Vec::new();
    for entry in std::fs::read_dir(chart().join("crds"))? {
        let text = std::fs::read_to_string(entry?.path())?;
        definitions.extend(
            documents(&text)?
                .into_iter()
                .filter(|document| !document.is_null()),
        );
    }
    for definition in &mut definitions {
        definition["metadata"]["annotations"][VERSION] = json!("0.0.1");
        if definition["metadata"]["name"] == POLICIES {
            remove_compression(definition)?;
        }
    }
    Ok(definitions)
}

fn remove_compression(definition: &mut Value) -> Result<()> {
    let spec = definition
        .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
        .and_then(Value::as_object_mut)
        .context("a schema of the specification")?;
    // Rules of the newer field name it.
    spec.remove("x-kubernetes-validations");
    let fields = spec["properties"].as_object_mut().context("fields")?;
    fields.remove("compression").context("compression")?;
    Ok(())
}

/// Waits until the API server serves the kind of policies.
async fn until_served(server: &ApiServer) -> Result<()> {
    let established =
        |definition: &Value| e2e::cluster::is_true(&definition["status"], "Established");
    server.until(CRD, POLICIES, LIMIT, established).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn older_definitions_become_those_of_this_version_and_objects_stay() -> Result<()> {
    let cluster = Older::start().await?;
    for definition in older_definitions()? {
        cluster.server.put(definition).await?;
    }
    until_served(&cluster.server).await?;
    cluster.make_policy().await?;

    let (is_good, told) = cluster.apply()?;
    ensure!(is_good && told.matches(" updated").count() == 6, "{told}");
    assert_eq!(
        cluster.compress().await?["types"],
        json!(["text/html"]),
        "the field is known as soon as the command ends"
    );
    let (is_good, told) = cluster.apply()?;
    ensure!(is_good && told.matches(" unchanged").count() == 6, "{told}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn definitions_that_are_newer_or_of_somebody_else_stay() -> Result<()> {
    const FOREIGN: &str = "tenantgateways.gateway.cozystack.io";
    let cluster = Older::start().await?;
    let (is_good, told) = cluster.apply()?;
    ensure!(is_good && told.matches(" created").count() == 6, "{told}");
    cluster.annotate(POLICIES, Some("99.0.0")).await?;
    cluster.annotate(FOREIGN, None).await?;
    let before = cluster.definition(FOREIGN).await?;

    let (is_good, told) = cluster.apply()?;
    let row = |name: &str| {
        told.lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
    };
    ensure!(is_good && told.matches(" kept").count() == 2, "{told}");
    ensure!(row(POLICIES).contains("99.0.0, which is newer"), "{told}");
    ensure!(row(FOREIGN).contains("not of Gatewright"), "{told}");
    assert_eq!(
        before.metadata.resource_version,
        cluster.definition(FOREIGN).await?.metadata.resource_version
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn a_version_with_stored_objects_is_not_removed() -> Result<()> {
    let cluster = Older::start().await?;
    let mut definitions = older_definitions()?;
    let policies = definitions
        .iter_mut()
        .find(|definition| definition["metadata"]["name"] == POLICIES)
        .context("TrafficPolicies")?;
    policies["spec"]["versions"][0]["name"] = json!("v1alpha0");
    for definition in definitions {
        cluster.server.put(definition).await?;
    }
    until_served(&cluster.server).await?;

    let (is_good, told) = cluster.apply()?;
    ensure!(!is_good && told.contains("stored in v1alpha0"), "{told}");
    let others = cluster.definition("accesspolicies.gatewright.io").await?;
    let version = others
        .metadata
        .annotations
        .and_then(|mut all| all.remove(VERSION));
    assert_eq!(version.as_deref(), Some("0.0.1"), "nothing was changed");
    Ok(())
}

/// Copies the chart, with older definitions.
fn older_chart(into: &Path) -> Result<String> {
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(chart())
        .arg(into)
        .status()?;
    ensure!(copied.success(), "copying the chart");
    let folder = into.join("chart");
    for entry in std::fs::read_dir(folder.join("crds"))? {
        std::fs::remove_file(entry?.path())?;
    }
    for definition in older_definitions()? {
        let name = definition["metadata"]["name"].as_str().context("a name")?;
        std::fs::write(
            folder.join("crds").join(format!("{name}.yaml")),
            definition.to_string(),
        )?;
    }
    Ok(folder.display().to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes and Helm, and root for the network of pods: e2e/tools install kubernetes gateway-api helm envoy"]
async fn an_upgrade_of_the_chart_brings_its_definitions() -> Result<()> {
    let mut cluster = Older::start().await?;
    cluster.server.start_controllers_of_pods()?;
    let _kubelet = Kubelet::start(&cluster.server, &programs()?).await?;
    let helm = Helm::new(Some(cluster.kubeconfig.clone()))?;
    let dir = tempfile::tempdir()?;
    let older = older_chart(dir.path())?;
    let set = ["-n", NAMESPACE, "--set", "envoy.enabled=false"];
    let install = ["install", "gatewright", &older, "--create-namespace"];
    helm.run(&[&install[..], &set].concat())?;
    until_served(&cluster.server).await?;
    cluster.make_policy().await?;

    let newer = chart().display().to_string();
    let upgrade = ["upgrade", "gatewright", &newer];
    helm.run(&[&upgrade[..], &set, &["--set", "crds.upgrade=false"]].concat())?;
    ensure!(
        cluster.compress().await?.is_null(),
        "Helm alone changes no definition"
    );
    helm.run(&[&upgrade[..], &set].concat())?;
    assert_eq!(cluster.compress().await?["types"], json!(["text/html"]));
    for (version, kind, namespace) in [
        ("batch/v1", "Job", NAMESPACE),
        ("v1", "ServiceAccount", NAMESPACE),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", ""),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", ""),
    ] {
        let gone = |object: &Value| {
            object.is_null() || object["metadata"]["deletionTimestamp"].is_string()
        };
        cluster
            .server
            .until((version, kind, namespace), "gatewright-crds", LIMIT, gone)
            .await?;
    }
    Ok(())
}
