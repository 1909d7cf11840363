//! The outputs of conversions (`src/convert/SOURCE/testdata`) on a real API server, with the
//! definitions of the standard channel and ours: each object is valid, and has no unknown field.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::manifests::documents;
use e2e::apiserver::{ApiServer, Definitions};
use serde_json::json;

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn the_api_server_accepts_what_is_written() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi, Definitions::Ours]).await?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/convert");
    let mut files = 0;
    let mut namespaces = BTreeSet::from(["default".to_owned()]);
    let mut wrong = Vec::new();
    for source in std::fs::read_dir(&folder)? {
        let Ok(cases) = std::fs::read_dir(source?.path().join("testdata")) else {
            continue;
        };
        for case in cases {
            let file = case?.path();
            if !file.to_string_lossy().ends_with(".out.yaml") {
                continue;
            }
            files += 1;
            for object in documents(&std::fs::read_to_string(&file)?)? {
                let namespace = object["metadata"]["namespace"].as_str();
                let namespace = namespace.context("a namespace")?.to_owned();
                if namespaces.insert(namespace.clone()) {
                    let metadata = json!({"name": namespace});
                    let object =
                        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
                    server.put(object).await?;
                }
                if let Err(error) = server.dry_run(object).await {
                    wrong.push(format!("{}: {error:#}", file.display()));
                }
            }
        }
    }
    ensure!(files > 10, "{files} outputs were found");
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
