//! CRDs whose served versions change while the controller runs.

use anyhow::{Context, Result};
use e2e::apiserver::ApiServer;
use e2e::cluster::{Cluster, is_true, service, tls_secret};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use e2e::tenants::{GATEWAY, quiet};

/// Serves exactly these versions of a kind.
async fn serve(server: &ApiServer, plural: &str, versions: &[&str]) -> Result<()> {
    let definitions = server
        .api("apiextensions.k8s.io/v1", "CustomResourceDefinition", "")
        .await?;
    let name = format!("{plural}.gateway.networking.k8s.io");
    let mut spec = definitions.get(&name).await?.data["spec"].clone();
    for version in spec["versions"].as_array_mut().context("versions")? {
        let is_served = versions.iter().any(|wanted| version["name"] == *wanted);
        version["served"] = json!(is_served);
    }
    let patch = Patch::Merge(json!({"spec": {"versions": spec["versions"]}}));
    definitions
        .patch(&name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn a_kind_that_is_served_in_another_version_is_the_same_kind() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "keys"}}))
        .await?;
    server
        .put(tls_secret("keys", "cert", &["a.example.org"])?)
        .await?;
    server
        .put(
            json!({"apiVersion": GATEWAY, "kind": "ReferenceGrant", "metadata": {"name": "grant", "namespace": "keys"},
            "spec": {"from": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "default"}],
                "to": [{"group": "", "kind": "Secret"}]}}),
        )
        .await?;
    for object in service("default", "web", 80) {
        server.put(object).await?;
    }
    let listeners = json!([
        {"name": "a", "protocol": "HTTPS", "port": 8443, "hostname": "a.example.org",
            "tls": {"certificateRefs": [{"name": "cert", "namespace": "keys"}]}},
        {"name": "b", "protocol": "TLS", "port": 8443, "hostname": "*.b.example.org", "tls": {"mode": "Passthrough"}}]);
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "listeners": listeners}}))
        .await?;
    let route = |version: &str, name: &str| {
        json!({"apiVersion": format!("gateway.networking.k8s.io/{version}"), "kind": "TLSRoute",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [format!("{name}.b.example.org")],
                "rules": [{"name": "all", "backendRefs": [{"name": "web", "port": 80}]}]}})
    };
    let accepted = |o: &Value| is_true(&o["status"]["parents"][0], "Accepted");
    let attached = |count: u32| {
        move |o: &Value| {
            o["status"]["listeners"][1]["attachedRoutes"] == count
                && is_true(&o["status"]["listeners"][0], "ResolvedRefs")
        }
    };
    server.put(route("v1", "one")).await?;
    let mut controller = cluster.controller("one")?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", attached(1))
        .await?;
    cluster
        .until(GATEWAY, "TLSRoute", "default", "one", accepted)
        .await?;
    let settled = quiet(&cluster, 0).await?.len();

    // An older one only.
    serve(server, "referencegrants", &["v1beta1"]).await?;
    serve(server, "tlsroutes", &["v1alpha3"]).await?;
    controller
        .line("ReferenceGrant is served as v1beta1 and no longer as v1")
        .await?;
    controller
        .line("TLSRoute is served as v1alpha3 and no longer as v1")
        .await?;
    assert_eq!(quiet(&cluster, settled).await?, [], "nothing has changed");
    server.put(route("v1alpha3", "two")).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", attached(2))
        .await?;
    cluster
        .until(
            "gateway.networking.k8s.io/v1alpha3",
            "TLSRoute",
            "default",
            "two",
            accepted,
        )
        .await?;
    let grants = server
        .api(
            "gateway.networking.k8s.io/v1beta1",
            "ReferenceGrant",
            "keys",
        )
        .await?;
    let settled = quiet(&cluster, 0).await?.len();

    // And all of them.
    serve(server, "referencegrants", &["v1", "v1beta1"]).await?;
    serve(server, "tlsroutes", &["v1", "v1alpha2", "v1alpha3"]).await?;
    controller
        .line("TLSRoute is served as v1 and no longer as v1alpha3")
        .await?;
    controller
        .line("ReferenceGrant is served as v1 and no longer as v1beta1")
        .await?;
    assert_eq!(quiet(&cluster, settled).await?, [], "nothing has changed");
    server
        .api(GATEWAY, "TLSRoute", "default")
        .await?
        .delete("one", &Default::default())
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", attached(1))
        .await?;
    // An event of a grant arrives in any version.
    grants.delete("grant", &Default::default()).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            let refs = e2e::cluster::condition(&o["status"]["listeners"][0], "ResolvedRefs");
            refs.is_some_and(|refs| refs["reason"] == "RefNotPermitted")
        })
        .await?;
    for kind in ["TLSRoute", "ReferenceGrant"] {
        assert!(
            !controller
                .output()
                .contains(&format!("{kind}: not served by")),
            "{}",
            controller.output()
        );
    }
    Ok(())
}
