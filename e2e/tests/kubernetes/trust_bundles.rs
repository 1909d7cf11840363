//! ClusterTrustBundles of a real API server as roots for backends, on a real Envoy.

use std::net::SocketAddr;

use anyhow::Result;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{BACKEND, Cluster, condition};
use e2e::helm::Helm;
use e2e::probe::Probe;
use e2e::tls_backend::{TestRoot, TlsBackend};
use serde_json::{Value, json};

use crate::edge::plain_edge;
use crate::pods::until_served;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const BUNDLES: &str = "certificates.k8s.io/v1beta1";
const HOST: &str = "app.example.org";

fn bundle(root: &TestRoot) -> Value {
    json!({"apiVersion": BUNDLES, "kind": "ClusterTrustBundle", "metadata": {"name": "backends"},
        "spec": {"trustBundle": root.pem()}})
}

/// Returns status and reason of a condition of the policy.
fn told(policy: &Value, kind: &str) -> (Value, Value) {
    let condition = condition(&policy["status"]["ancestors"][0], kind)
        .cloned()
        .unwrap_or_default();
    (condition["status"].clone(), condition["reason"].clone())
}

fn is_listed(class: &Value) -> bool {
    let features = class["status"]["supportedFeatures"]
        .as_array()
        .into_iter()
        .flatten();
    features
        .into_iter()
        .any(|feature| feature["name"] == "ClusterTrustBundle")
}

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and Helm: e2e/tools install"]
async fn backends_are_verified_by_a_bundle_of_the_cluster() -> Result<()> {
    let gate = "--feature-gates=ClusterTrustBundle=true";
    let served = "--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true";
    let server = ApiServer::with_arguments(&[Definitions::GatewayApi], &[gate, served]).await?;
    let cluster = Cluster::over(server).await?;
    let server = &cluster.server;
    Helm::new(None)?.grant_experimental_channel(server).await?;
    let root = TestRoot::new("one")?;
    let other = TestRoot::new("two")?;
    let backend = TlsBackend::start_on(BACKEND, &root.issue("web.internal", None)?, None).await?;
    let port = plain_edge(server, HOST, backend.address().port()).await?;
    let reference =
        json!({"group": "certificates.k8s.io", "kind": "ClusterTrustBundle", "name": "backends"});
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "BackendTLSPolicy", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
                "validation": {"hostname": "web.internal", "caCertificateRefs": [reference]}}}))
        .await?;
    let mut controller =
        cluster.controller_with("one", &["--set", "gatewayApi.channel=Experimental"])?;
    controller.line("xDS at").await?;
    let (mut envoy, _tls) = cluster.envoy("envoy-a").await?;
    envoy.ready().await?;
    cluster
        .until(GATEWAY, "GatewayClass", "", "gatewright", is_listed)
        .await?;

    let policy = async |good: bool, reason: &str| {
        let wanted = (json!(if good { "True" } else { "False" }), json!(reason));
        cluster
            .until(GATEWAY, "BackendTLSPolicy", "default", "web", |o| {
                told(o, "ResolvedRefs") == wanted
            })
            .await
    };
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let probe = Probe::http(address, HOST);
    let answers = |status| until_served(&probe, status);
    policy(false, "InvalidCACertificateRef").await?;
    answers(503).await?;
    server.put(bundle(&root)).await?;
    policy(true, "ResolvedRefs").await?;
    answers(200).await?;
    // Roots are replaced, and removed: no request is sent to a backend that cannot be
    // authenticated.
    server.put(bundle(&other)).await?;
    answers(503).await?;
    server.put(bundle(&root)).await?;
    answers(200).await?;
    server
        .api(BUNDLES, "ClusterTrustBundle", "")
        .await?
        .delete("backends", &Default::default())
        .await?;
    policy(false, "InvalidCACertificateRef").await?;
    answers(503).await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
