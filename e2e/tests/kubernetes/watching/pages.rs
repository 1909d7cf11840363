//! An API server of a version with streaming lists, with the feature turned off.

use anyhow::Result;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{ACCOUNT, Cluster, is_true};
use serde_json::json;

use e2e::tenants::GATEWAY;

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn a_server_that_refuses_streaming_lists_is_listed_in_pages() -> Result<()> {
    let server = ApiServer::with_arguments(
        &[Definitions::GatewayApi],
        &["--feature-gates=WatchList=false"],
    )
    .await?;
    let cluster = Cluster::over(server).await?;
    cluster
        .server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let mut controller = cluster.controller("one")?;
    controller.line("the view is complete").await?;
    let listener = json!({"name": "http", "protocol": "HTTP", "port": 8081});
    cluster
        .server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "listeners": [listener]}}))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            is_true(&o["status"], "Accepted")
        })
        .await?;
    let asked = cluster.server.requests()?;
    let refused = |code: u16| matches!(code, 400 | 422);
    let streams = asked
        .iter()
        .filter(|r| r.user == ACCOUNT && r.uri.contains("sendInitialEvents") && refused(r.code));
    assert!(streams.count() > 0, "it was asked for streams first");
    Ok(())
}
