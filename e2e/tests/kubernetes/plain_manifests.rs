//! The plain manifests of `deploy/`, for users who validate them in a pipeline with the schemas
//! alone.

use anyhow::{Context, Result};
use e2e::apiserver::manifests::documents;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::deploy::{RENDERED, folder};
use e2e::kubeconform::Schemas;
use serde_json::json;

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api kubeconform"]
async fn they_are_as_the_schemas_of_the_server_have_it() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi, Definitions::Ours]).await?;
    let schemas = Schemas::of(&server).await?;
    let mut checked = 0;
    let files = RENDERED.map(|name| std::fs::read_dir(folder().join(name)));
    for file in files.into_iter().flatten().flatten() {
        let path = file?.path();
        if path.extension().is_none_or(|kind| kind != "yaml")
            || path.ends_with("kustomization.yaml")
        {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        schemas
            .check(&text)
            .with_context(|| path.display().to_string())?;
        for mut wrong in documents(&text)?
            .into_iter()
            .filter(|object| !object.is_null())
        {
            let kind = wrong["kind"].clone();
            wrong["spek"] = json!({});
            let refused = schemas
                .check(&wrong.to_string())
                .expect_err("an unknown field")
                .to_string();
            assert!(refused.contains("spek"), "{kind}: {refused}");
            checked += 1;
        }
    }
    assert!(checked > 40, "only {checked} objects");
    Ok(())
}
