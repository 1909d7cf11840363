//! The recipes of `examples/recipes` for users of clusters: a real API server takes their objects,
//! with the CRDs of the standard channel. What they do is tested with standalone mode.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::manifests::documents;
use e2e::apiserver::{ApiServer, Definitions};
use serde_json::json;

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn an_api_server_takes_their_objects() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi, Definitions::Ours]).await?;
    for name in ["shop", "red"] {
        let metadata = json!({"name": name});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        server.put(namespace).await?;
    }
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/recipes");
    let mut refused = Vec::new();
    for entry in std::fs::read_dir(recipes)? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        for object in documents(&text).with_context(|| path.display().to_string())? {
            // The page says to leave these out.
            if object["kind"] == "EndpointSlice" {
                continue;
            }
            if let Err(error) = server.dry_run(object).await {
                refused.push(format!("{}: {}", path.display(), error.root_cause()));
            }
        }
    }
    ensure!(refused.is_empty(), "{}", refused.join("\n"));
    Ok(())
}
