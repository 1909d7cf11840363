//! Tests of the API server fixture itself.

use anyhow::{Context, Result};
use e2e::apiserver::{ApiServer, Definitions, is_write};
use serde_json::json;

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn it_validates_authorizes_remembers_and_tells() -> Result<()> {
    let mut server = ApiServer::with(&[Definitions::GatewayApi]).await?;

    // The validation rules of the schema are applied.
    let gateway = |port: u32| {
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"gatewayClassName": "c", "listeners": [{"name": "http", "protocol": "HTTP", "port": port}]}})
    };
    let refused = server.put(gateway(70_000)).await.expect_err("no such port");
    assert!(format!("{refused:#}").contains("65535"), "{refused:#}");
    let mut unknown = gateway(80);
    unknown["spec"]["listenerz"] = json!([]);
    let refused = server.dry_run(unknown).await.expect_err("no such field");
    assert!(format!("{refused:#}").contains("listenerz"), "{refused:#}");
    server.put(gateway(80)).await?;

    // Users have the rights that RBAC gives them.
    let nobody = server.client_as("nobody", &[]).await?;
    let gateways =
        kube::api::Api::<k8s_openapi::api::core::v1::Secret>::namespaced(nobody, "default");
    let denied = gateways
        .list(&Default::default())
        .await
        .expect_err("nobody may read secrets");
    assert!(denied.to_string().contains("nobody"), "{denied}");

    // All requests are logged.
    let requests = server.requests()?;
    let denied = requests
        .iter()
        .find(|r| r.user == "nobody" && r.resource == "secrets")
        .context("it was asked")?;
    assert_eq!(
        denied.verb.as_str(),
        "list",
        "the refused request is the list"
    );
    assert_eq!(denied.code, 403, "it is forbidden");
    assert!(!is_write(denied), "it is no write");
    let kept = requests
        .iter()
        .filter(|r| r.object == "default/g" && is_write(r) && !r.uri.contains("dryRun"));
    assert_eq!(kept.map(|r| r.code).collect::<Vec<_>>(), [422, 201]);

    // Objects survive a restart of the server.
    server.kill();
    server.resume().await?;
    let api = server
        .api("gateway.networking.k8s.io/v1", "Gateway", "default")
        .await?;
    assert_eq!(api.get("g").await?.data["spec"]["listeners"][0]["port"], 80);
    Ok(())
}
