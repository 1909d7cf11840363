//! Credentials that expire while the controller runs, and are renewed in their file as by a
//! kubelet.

use std::path::Path;

use anyhow::{Context, Result};
use e2e::cluster::{Cluster, NAMESPACE, is_true};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use e2e::tenants::GATEWAY;

const ACCOUNT: &str = "gatewright-controller";

/// Writes a new token of the service account into a file.
async fn bring(accounts: &Api<ServiceAccount>, file: &Path) -> Result<()> {
    let spec = TokenRequestSpec {
        expiration_seconds: Some(600),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest {
        spec: Some(spec),
        ..TokenRequest::default()
    };
    let made = accounts
        .create_token_request(ACCOUNT, &PostParams::default(), &request)
        .await?;
    let new = file.with_extension("new");
    std::fs::write(
        &new,
        made.status
            .and_then(|status| status.token)
            .context("a token")?,
    )?;
    Ok(std::fs::rename(new, file)?)
}

fn gateway(name: &str, port: u16) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": "default"},
        "spec": {"gatewayClassName": "gatewright", "listeners": [{"name": "http", "protocol": "HTTP", "port": port}]}})
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn a_token_that_is_taken_no_more_is_read_again_from_its_file() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(server.client(), NAMESPACE);
    let dir = tempfile::tempdir()?;
    let token = dir.path().join("token");
    bring(&accounts, &token).await?;
    let mut controller = cluster.replica_as("one", &server.kubeconfig_with_token(&token)?)?;
    controller.line("the view is complete").await?;
    controller.line("holding the lease").await?;
    let told = |o: &Value| is_true(&o["status"], "Accepted");
    server.put(gateway("a", 8081)).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "a", told)
        .await?;

    // A token is bound to the account's UID.
    let account = accounts.get(ACCOUNT).await?;
    accounts.delete(ACCOUNT, &Default::default()).await?;
    let mut again = ServiceAccount::default();
    again.metadata.name = account.metadata.name;
    accounts.create(&PostParams::default(), &again).await?;
    controller.line("Unauthorized").await?;
    server.put(gateway("b", 8082)).await?;
    bring(&accounts, &token).await?;
    // The file is read once a minute.
    cluster
        .until(GATEWAY, "Gateway", "default", "b", told)
        .await?;
    // All watches continue.
    server.put(gateway("c", 8083)).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "c", told)
        .await?;
    // Each watch is renewed at its own time.
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let (code, metrics) = controller.probe("/metrics").await?;
        assert_eq!(code, 200);
        if !metrics.contains("state=\"stale\"") {
            return Ok(());
        }
        assert!(Instant::now() < deadline, "{metrics}");
        sleep(Duration::from_millis(200)).await;
    }
}
