//! The admission policies of `deploy/policies`: they admit and refuse the right requests, and stop
//! nothing else.

mod cases;

use self::cases::cases;
use anyhow::{Context, Result};
use e2e::apiserver::manifests::documents;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::deploy::{folder, kustomized};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::discovery::{Scope, pinned_kind};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn the_policies_decide() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    policies(&server).await
}

struct Case {
    what: &'static str,
    /// Group of the user who makes the request; empty for an ordinary user.
    group: &'static str,
    object: Value,
    /// A word of the refusal; `None` if it is admitted.
    refused: Option<&'static str>,
}

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const POLICIES: &str = "admissionregistration.k8s.io/v1";

fn gateway(namespace: &str, protocol: &str, hostname: Option<&str>) -> Value {
    let mut listener = json!({"name": "l", "port": 443, "protocol": protocol});
    if protocol == "HTTPS" {
        listener["tls"] = json!({"certificateRefs": [{"name": "c"}]});
    }
    if let Some(hostname) = hostname {
        listener["hostname"] = json!(hostname);
    }
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "g", "namespace": namespace},
        "spec": {"gatewayClassName": "c", "listeners": [listener]}})
}

fn listener_set(namespace: &str, hostname: &str) -> Value {
    let mut set = gateway(namespace, "HTTPS", Some(hostname));
    set["kind"] = json!("ListenerSet");
    set["spec"]
        .as_object_mut()
        .expect("an object")
        .remove("gatewayClassName");
    set["spec"]["parentRef"] = json!({"name": "g"});
    set
}

fn route(kind: &str, namespace: &str, hostnames: &[&str]) -> Value {
    let mut route = json!({"apiVersion": GATEWAY, "kind": kind, "metadata": {"name": "r", "namespace": namespace},
        "spec": {"parentRefs": [{"name": "g"}], "hostnames": hostnames, "rules": [{"backendRefs": [{"name": "b", "port": 1}]}]}});
    if hostnames.is_empty() {
        route["spec"]
            .as_object_mut()
            .expect("an object")
            .remove("hostnames");
    }
    route
}

fn namespace(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// A namespace with the annotation of an attached namespace.
fn attached(name: &str) -> Value {
    let annotations = json!({"cozystack.io/gateway-attached-by": "tenant-a"});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}})
}

fn tenant(host: Option<&str>) -> Value {
    json!({"apiVersion": "apps.cozystack.io/v1alpha1", "kind": "Tenant",
        "metadata": {"name": "t", "namespace": "tenant-a"}, "spec": {"host": host.unwrap_or_default()}})
}

const HOST: &str = "namespace.cozystack.io/host";
const OWNER: &str = "namespace.cozystack.io/gateway";

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The Service of a dedicated Gateway.
fn dedicated(name: &str, target: u16) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "tenant-a",
        "labels": {MANAGED_BY: "gatewright"}, "annotations": {"gatewright.io/gateway": "edge"}},
        "spec": {"ports": [{"name": "p443", "port": 443, "targetPort": target, "protocol": "TCP"}]}})
}

const SLICES_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The slice that makes somebody's Service lead to a Gateway.
fn lent(name: &str, target: u16) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "tenant-a",
            "labels": {SLICES_BY: "gatewright", "kubernetes.io/service-name": "web"},
            "annotations": {"gatewright.io/stands-on": "web"}},
        "endpoints": [], "ports": [{"name": "p443", "port": target, "protocol": "TCP"}]})
}

fn labelled(mut object: Value, name: &str, value: &str) -> Value {
    object["metadata"]["labels"][name] = json!(value);
    object
}

/// Adds fields to the parentRef of a route.
fn parent(mut route: Value, more: Value) -> Value {
    for (field, value) in more.as_object().into_iter().flatten() {
        route["spec"]["parentRefs"][0][field] = value.clone();
    }
    route
}

/// Makes a route the redirect of a TenantGateway from plain HTTP to HTTPS.
fn redirect(mut route: Value) -> Value {
    route["metadata"]["name"] = json!("cozystack-http-redirect");
    route["spec"]["rules"] = json!([{"filters": [{"type": "RequestRedirect",
        "requestRedirect": {"scheme": "https", "statusCode": 301}}]}]);
    route
}

/// A route at a Gateway, with these rules.
fn rules(rules: Value) -> Value {
    let mut route = route("HTTPRoute", "owner", &[]);
    route["spec"]["rules"] = rules;
    route
}

async fn policies(server: &ApiServer) -> Result<()> {
    // The kind that layer 3 checks, with the fields that it reads.
    server
        .put(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "tenants.apps.cozystack.io"},
            "spec": {"group": "apps.cozystack.io", "scope": "Namespaced",
                "names": {"plural": "tenants", "singular": "tenant", "kind": "Tenant"},
                "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}))
        .await?;
    for (name, labels) in [
        ("tenant-a", json!({HOST: "a.example.org"})),
        ("tenant-none", json!({})),
        ("infra", json!({})),
        ("owner", json!({OWNER: "owner"})),
    ] {
        server.put(namespace(name, labels)).await?;
    }
    server.put(dedicated("edge", 20_001)).await?;
    server.put(lent("edge-web-v4", 20_001)).await?;
    // RBAC allows these users everything.
    server
        .put(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "everybody"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]}))
        .await?;
    let tenants = server.client_as("canary", &["tenants"]).await?;
    earlier(server, &tenants).await?;
    for object in kustomized(&folder().join("policies"))? {
        server.put(object).await?;
    }
    // A policy takes effect a moment after it was written.
    decided(
        &tenants,
        &gateway("tenant-a", "HTTPS", Some("b.example.org")),
        Some("must equal"),
    )
    .await?;
    // Existing routes at Cilium stay valid until a further policy is installed. A policy with
    // parameters refuses until the API server knows these.
    let plain = route("HTTPRoute", "owner", &["x.org"]);
    decided(&tenants, &plain, None).await?;
    for object in documents(&std::fs::read_to_string(
        folder().join("policies/plain-http.yaml"),
    )?)? {
        server.put(object).await?;
    }
    decided(&tenants, &plain, Some("add port 443")).await?;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(120);
    // Each takes effect at its own time.
    let mut left = cases();
    while !left.is_empty() {
        let mut wrong = Vec::new();
        for (number, case) in std::mem::take(&mut left).into_iter().enumerate() {
            let client = server
                .client_as(&format!("user-{number}"), &[case.group])
                .await?;
            let told = attempt(&client, &case.object).await?;
            let right = match (&told, case.refused) {
                (None, None) => true,
                (Some(told), Some(word)) => told.contains(word),
                _ => false,
            };
            if !right {
                wrong.push(format!(
                    "{}: expected {:?}, got {told:?}",
                    case.what, case.refused
                ));
                left.push(case);
            }
        }
        assert!(
            left.is_empty() || tokio::time::Instant::now() < deadline,
            "{}",
            wrong.join("\n")
        );
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    labels(server, &tenants).await?;
    unhindered(server, &tenants).await?;
    settings(server).await
}

/// Policies of earlier versions had a ConfigMap of parameters. After the last policy with one was
/// deleted, an API server watches ConfigMaps for policies no more, and finds no parameters until it
/// is restarted (Kubernetes 1.36, `admission/plugin/policy/generic/policy_source.go`). A policy of
/// today decides there nevertheless.
async fn earlier(server: &ApiServer, tenants: &Client) -> Result<()> {
    let foreign = route("HTTPRoute", "tenant-a", &["b.example.org"]);
    let parameters = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "gatewright-policies", "namespace": "kube-system"}, "data": {"refuse": "it"}});
    let policy = json!({"apiVersion": POLICIES, "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "gatewright-route-hostnames"},
        "spec": {"failurePolicy": "Fail", "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": [{"apiGroups": ["gateway.networking.k8s.io"], "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE"], "resources": ["httproutes"]}]},
            "validations": [{"expression": "false", "messageExpression": "'parameters said: refuse ' + params.data.refuse"}]}});
    let binding = json!({"apiVersion": POLICIES, "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "gatewright-route-hostnames"},
        "spec": {"policyName": "gatewright-route-hostnames", "validationActions": ["Deny"],
            "paramRef": {"name": "gatewright-policies", "namespace": "kube-system", "parameterNotFoundAction": "Allow"}}});
    for object in [parameters.clone(), policy.clone(), binding.clone()] {
        server.put(object).await?;
    }
    decided(tenants, &foreign, Some("parameters said")).await?;
    for object in [&parameters, &policy, &binding] {
        let (api, name) = server.api_of(object).await?;
        api.delete(&name, &Default::default()).await?;
    }
    decided(tenants, &foreign, None).await?;
    // What an upgrade finds: all three of them.
    for object in [parameters, policy, binding] {
        server.put(object).await?;
    }
    Ok(())
}

/// Waits until a request is refused with this word, or admitted.
pub(crate) async fn decided(client: &Client, object: &Value, word: Option<&str>) -> Result<()> {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(120);
    loop {
        let told = attempt(client, object).await?;
        let right = match word {
            Some(word) => told.as_ref().is_some_and(|told| told.contains(word)),
            None => told.is_none(),
        };
        if right {
            return Ok(());
        }
        anyhow::ensure!(
            tokio::time::Instant::now() < deadline,
            "expected {word:?}, got {told:?}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// The label of a namespace cannot bypass the policy.
async fn labels(server: &ApiServer, tenants: &Client) -> Result<()> {
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let namespaces =
        |client: &Client| Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
    let without = Patch::Merge(json!({"metadata": {"labels": {HOST: null}}}));
    let all = namespaces(tenants);
    let name = "tenant-a";
    for outcome in [
        all.patch(name, &dry, &without).await,
        all.patch_status(name, &dry, &without).await,
    ] {
        let told = outcome.expect_err("it is the platform's").to_string();
        assert!(told.contains("immutable"), "{told}");
    }
    let platform = namespaces(
        &server
            .client_as("somebody", &["kubeadm:cluster-admins"])
            .await?,
    );
    platform.patch(name, &dry, &without).await?;
    Ok(())
}

/// The policies need no ConfigMap to decide, and block nothing that the cluster's own controllers
/// write: other labels, statuses, finalizers, and the finalization of namespaces.
async fn unhindered(server: &ApiServer, tenants: &Client) -> Result<()> {
    for namespace in ["kube-system", "default"] {
        let all = server.api("v1", "ConfigMap", namespace).await?;
        all.delete_collection(&Default::default(), &Default::default())
            .await?;
    }
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let all: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(tenants.clone());
    let guarded = Patch::Merge(json!({"metadata": {"labels": {HOST: null}}}));
    let told = all
        .patch("tenant-a", &dry, &guarded)
        .await
        .expect_err("the label is the platform's")
        .to_string();
    assert!(told.contains("immutable"), "{told}");
    for (object, word) in [
        (route("HTTPRoute", "tenant-a", &[]), "must name a host"),
        (route("HTTPRoute", "tenant-a", &["b.org"]), "must equal"),
        (gateway("tenant-a", "HTTPS", None), "must name a hostname"),
        (
            gateway("tenant-none", "HTTPS", Some("x.org")),
            "has no label",
        ),
    ] {
        let told = attempt(tenants, &object).await?.unwrap_or_default();
        assert!(told.contains(word), "{word}: {told}");
    }

    let ordinary = Patch::Merge(json!({"metadata": {"labels": {"team": "blue"}}}));
    all.patch("tenant-a", &PatchParams::default(), &ordinary)
        .await?;
    all.patch_status("tenant-a", &dry, &ordinary).await?;
    let there = all.get("tenant-a").await?;
    let params = kube::api::PostParams {
        dry_run: true,
        ..Default::default()
    };
    all.replace_subresource("finalize", "tenant-a", &params, &there)
        .await?;
    for object in [
        namespace("tenant-new", json!({})),
        route("HTTPRoute", "infra", &["b.org"]),
        gateway("infra", "HTTPS", Some("anything.org")),
    ] {
        assert_eq!(attempt(tenants, &object).await?, None);
    }

    // A Gateway that the policies would refuse today gets its status, and loses its finalizer.
    let old = gateway("tenant-later", "HTTPS", Some("x.org"));
    server
        .put(namespace("tenant-later", json!({HOST: "x.org"})))
        .await?;
    server.put(old.clone()).await?;
    let platform: Api<k8s_openapi::api::core::v1::Namespace> =
        Api::all(server.client_as("platform", &["system:masters"]).await?);
    let moved = Patch::Merge(json!({"metadata": {"labels": {HOST: "y.org"}}}));
    platform
        .patch("tenant-later", &PatchParams::default(), &moved)
        .await?;
    let mut longer = old.clone();
    longer["spec"]["listeners"][0]["hostname"] = json!("z.org");
    decided(tenants, &longer, Some("must equal y.org")).await?;
    let (gateways, name) = server.api_of(&old).await?;
    for finalizers in [json!(["example.org/later"]), json!([])] {
        let change = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        gateways
            .patch(&name, &PatchParams::default(), &change)
            .await?;
    }
    let condition = json!({"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    gateways
        .patch_status(&name, &PatchParams::default(), &status)
        .await?;
    Ok(())
}

/// The patches of docs/kubernetes.md change who the platform is, and which namespaces are tenants'.
async fn settings(server: &ApiServer) -> Result<()> {
    let page = std::fs::read_to_string(folder().join("../docs/kubernetes.md"))?;
    let patches = page
        .split("```yaml\n")
        .find(|part| part.starts_with("# kustomization.yaml"))
        .context("patches")?;
    let at = tempfile::tempdir()?;
    let policies = at.path().join("policies");
    std::fs::create_dir_all(at.path().join("own"))?;
    std::fs::create_dir_all(&policies)?;
    for file in std::fs::read_dir(folder().join("policies"))? {
        let file = file?;
        std::fs::copy(file.path(), policies.join(file.file_name()))?;
    }
    let patches = patches.split("```").next().unwrap_or_default();
    std::fs::write(at.path().join("own/kustomization.yaml"), patches)?;
    let kubectl = folder().join("../.tools/kubectl");
    let made = std::process::Command::new(kubectl)
        .arg("kustomize")
        .arg(at.path().join("own"))
        .output()?;
    anyhow::ensure!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    server
        .put(namespace("team-a", json!({HOST: "a.example.org"})))
        .await?;
    for object in documents(&String::from_utf8(made.stdout)?)? {
        server.put(object).await?;
    }
    let tenants = server.client_as("canary", &["tenants"]).await?;
    decided(
        &tenants,
        &route("HTTPRoute", "team-a", &["b.example.org"]),
        Some("must equal a.example.org"),
    )
    .await?;
    decided(
        &tenants,
        &gateway("team-a", "HTTPS", Some("b.example.org")),
        Some("must equal a.example.org"),
    )
    .await?;
    decided(
        &tenants,
        &route("HTTPRoute", "tenant-a", &["b.example.org"]),
        None,
    )
    .await?;
    let other = namespace("team-a", json!({HOST: "c.example.org"}));
    for (group, word) in [
        ("platform", None),
        ("kubeadm:cluster-admins", Some("immutable")),
    ] {
        decided(&server.client_as("somebody", &[group]).await?, &other, word).await?;
    }
    Ok(())
}

/// Returns the message of the refusal; `None` if it is admitted.
async fn attempt(client: &Client, object: &Value) -> Result<Option<String>> {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (group, version) = text("/apiVersion")
        .rsplit_once('/')
        .unwrap_or(("", text("/apiVersion")));
    let wanted = kube::api::GroupVersionKind::gvk(group, version, text("/kind"));
    let (resource, capabilities) = pinned_kind(client, &wanted).await?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            Api::namespaced_with(client.clone(), text("/metadata/namespace"), &resource)
        }
    };
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::apply("case").force()
    };
    match api
        .patch(text("/metadata/name"), &params, &Patch::Apply(object))
        .await
    {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}
