//! Admission policies after an uninstall and a new installation, or an option that was switched off
//! and on: they are in force again, without a restart of the API server.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::helm::{Helm, NAMESPACE, chart};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::policies::decided;

const LIMIT: Duration = Duration::from_secs(180);
const HOST: &str = "namespace.cozystack.io/host";

#[tokio::test]
#[ignore = "needs Kubernetes and Helm: e2e/tools install kubernetes gateway-api helm"]
async fn policies_around_tenants_refuse_after_every_installation_and_stop_nothing_else()
-> Result<()> {
    let mut server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    server.start_controllers()?;
    let helm = Helm::new(Some(server.kubeconfig("admin", &["system:masters"])?))?;
    let chart = chart().display().to_string();
    // Nothing runs Jobs here.
    let release = [
        "gatewright",
        &chart,
        "-n",
        NAMESPACE,
        "--set",
        "crds.upgrade=false",
    ];
    let with = |verb: &str, more: &[&str]| helm.run(&[&[verb], &release[..], more].concat());
    // RBAC allows tenants everything.
    server
        .put(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "everybody"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]}))
        .await?;
    let tenant = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "tenant-bob", "labels": {HOST: "bob.example.org"}}});
    server.put(tenant).await?;
    let route = |hostname: &str| {
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "web", "namespace": "tenant-bob"},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [hostname]}})
    };
    let own = route("bob.example.org");
    let foreign = route("alice.example.org");
    let tenants = server.client_as("bob", &["tenants"]).await?;
    let refusal = Some("must equal bob.example.org");

    with(
        "install",
        &["--create-namespace", "--set", "policies.enabled=true"],
    )?;
    decided(&tenants, &foreign, refusal).await?;
    for off in ["uninstall", "upgrade"] {
        match off {
            "uninstall" => helm.run(&["uninstall", "gatewright", "-n", NAMESPACE])?,
            _ => with("upgrade", &["--set", "policies.enabled=false"])?,
        };
        decided(&tenants, &foreign, None).await?;
        match off {
            "uninstall" => with("install", &["--set", "policies.enabled=true"])?,
            _ => with("upgrade", &["--set", "policies.enabled=true"])?,
        };
        decided(&tenants, &foreign, refusal).await?;
        decided(&tenants, &own, None).await?;
    }

    // The policies around tenants look up no other object, and without parameters the one that does
    // admits.
    for kind in [
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ] {
        let all = server
            .api("admissionregistration.k8s.io/v1", kind, "")
            .await?
            .list(&Default::default())
            .await?;
        assert!(!all.items.is_empty());
        for object in all {
            let spec = &object.data["spec"];
            if object.metadata.name.as_deref() == Some("gatewright-controller-slices") {
                let absent = &spec["paramRef"]["parameterNotFoundAction"];
                assert!(
                    spec.get("paramKind").is_some() || absent == "Allow",
                    "{kind}: {spec}"
                );
                continue;
            }
            assert!(
                spec.get("paramKind").is_none() && spec.get("paramRef").is_none(),
                "{kind}: {spec}"
            );
        }
    }
    for namespace in ["kube-system", NAMESPACE] {
        let parameters = server.api("v1", "ConfigMap", namespace).await?;
        parameters
            .delete_collection(&Default::default(), &Default::default())
            .await?;
    }
    decided(&tenants, &foreign, refusal).await?;

    // The cluster's own controllers delete a tenant's namespace, with what is in it.
    server.put(own.clone()).await?;
    let namespaces = server.api("v1", "Namespace", "").await?;
    namespaces.delete("tenant-bob", &Default::default()).await?;
    let deadline = Instant::now() + LIMIT;
    while let Some(there) = namespaces.get_opt("tenant-bob").await? {
        ensure!(
            Instant::now() < deadline,
            "the namespace is not deleted: {}",
            there.data
        );
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Helm: e2e/tools install kubernetes gateway-api helm"]
async fn envoys_of_gateways_are_made_after_another_installation() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    let helm = Helm::new(Some(server.kubeconfig("admin", &["system:masters"])?))?;
    let chart = chart().display().to_string();
    let release = [
        "gatewright",
        &chart,
        "-n",
        NAMESPACE,
        "--set",
        "isolated.enabled=true",
    ];
    let with = |verb: &str, more: &[&str]| helm.run(&[&[verb], &release[..], more].concat());
    let name = "gatewright-isolated-edge-0123456789abcdef0123";
    let deployment = || async {
        let templates = server.api("v1", "PodTemplate", NAMESPACE).await?;
        let mut pods = templates.get("gatewright-envoy-isolated").await?.data["template"].clone();
        pods["metadata"]["labels"]["gatewright.io/isolated"] = json!(name);
        pods["spec"]["serviceAccountName"] = json!(name);
        if let Some(spec) = pods["spec"].as_object_mut() {
            spec.remove("serviceAccount");
        }
        anyhow::Ok(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "gatewright", "gatewright.io/isolated": name}},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"gatewright.io/isolated": name}}, "template": pods}}),
        )
    };
    let foreign = |mut deployment: Value| {
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!("mine");
        deployment
    };
    with("install", &["--create-namespace"])?;
    let first = deployment().await?;
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:gatewright-system",
        "system:authenticated",
    ];
    let user = format!("system:serviceaccount:{NAMESPACE}:gatewright-controller");
    server
        .until_may(&user, ("create", "apps", "deployments", NAMESPACE), true)
        .await?;
    let controller = server.client_as(&user, &groups).await?;
    decided(
        &controller,
        &foreign(first.clone()),
        Some("of the PodTemplate"),
    )
    .await?;
    decided(&controller, &first, None).await?;

    helm.run(&["uninstall", "gatewright", "-n", NAMESPACE])?;
    server
        .until_may(&user, ("create", "apps", "deployments", NAMESPACE), false)
        .await?;
    let policies = server
        .api(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
            "",
        )
        .await?;
    let left = policies
        .list(&Default::default())
        .await?
        .items
        .into_iter()
        .filter_map(|left| left.metadata.name);
    assert_eq!(
        left.collect::<Vec<_>>(),
        ["gatewright-controller-isolated-pods"]
    );
    with("install", &["--set", "envoy.image.tag=v1.40.9"])?;
    server
        .until_may(&user, ("create", "apps", "deployments", NAMESPACE), true)
        .await?;
    let second = deployment().await?;
    assert_ne!(first, second);
    decided(
        &controller,
        &foreign(second.clone()),
        Some("of the PodTemplate"),
    )
    .await?;
    decided(&controller, &second, None).await?;

    // Without the PodTemplate nothing else stops, and the controller's token can still run no pod.
    let templates = server.api("v1", "PodTemplate", NAMESPACE).await?;
    templates
        .delete("gatewright-envoy-isolated", &Default::default())
        .await?;
    decided(&controller, &second, Some("no params found")).await?;
    let mut unlabelled = second.clone();
    unlabelled["metadata"]["labels"] = json!({});
    decided(
        &controller,
        &unlabelled,
        Some("and nothing else of these kinds"),
    )
    .await?;
    let anybody = server.client_as("anybody", &["system:masters"]).await?;
    for namespace in [NAMESPACE, "default"] {
        let mut other = second.clone();
        other["metadata"] = json!({"name": "other", "namespace": namespace});
        let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "other"}}});
        let metadata = other["metadata"].clone();
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec});
        for object in [other, account, budget] {
            decided(&anybody, &object, None).await?;
        }
    }
    Ok(())
}
