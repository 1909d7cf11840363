//! Runs the real kubeconform, with the schemas that a real API server publishes.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::apiserver::ApiServer;
use crate::deploy::folder;

const LIMIT: Duration = Duration::from_secs(180);

/// The schemas, as files, of every kind that an API server serves.
#[derive(Debug)]
pub struct Schemas(TempDir);

impl Schemas {
    /// Fetches the OpenAPI documents of all groups (`/openapi/v3`), and waits for those of each
    /// CRD.
    pub async fn of(server: &ApiServer) -> Result<Self> {
        let client = server.client();
        let dir = TempDir::new()?;
        let definitions = get(
            &client,
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        )
        .await?;
        let wanted: Vec<String> = definitions["items"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(files_of)
            .collect();
        ensure!(!wanted.is_empty(), "no definitions");
        let deadline = Instant::now() + LIMIT;
        loop {
            write(&client, dir.path()).await?;
            match wanted.iter().find(|file| !dir.path().join(file).exists()) {
                None => return Ok(Self(dir)),
                Some(file) => ensure!(
                    Instant::now() < deadline,
                    "the API server publishes no {file}"
                ),
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Checks manifests.
    ///
    /// # Errors
    /// The message of kubeconform about the first manifest that violates its schema, or has none.
    pub fn check(&self, manifests: &str) -> Result<()> {
        let program = folder().join("../.tools/kubeconform");
        ensure!(
            program.exists(),
            "no kubeconform at {}; run: e2e/tools install kubeconform",
            program.display()
        );
        let schemas = self
            .0
            .path()
            .join("{{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json");
        let mut kubeconform = Command::new(program)
            .args(["-strict", "-summary", "-schema-location"])
            .arg(schemas)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        kubeconform
            .stdin
            .take()
            .context("a pipe")?
            .write_all(manifests.as_bytes())?;
        let out = kubeconform.wait_with_output()?;
        let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.success(), "kubeconform: {said}");
        // Objects that kubeconform skips are not checked.
        ensure!(
            said.contains("Skipped: 0") && !said.contains("found 0 resources"),
            "kubeconform: {said}"
        );
        Ok(())
    }
}

/// Writes one file for each kind.
async fn write(client: &Client, dir: &Path) -> Result<()> {
    let index = get(client, "/openapi/v3").await?;
    let groups = index["paths"].as_object().context("paths")?;
    for path in groups.keys().filter(|path| path.starts_with("api")) {
        let mut document = get(client, &format!("/openapi/v3/{path}"))
            .await
            .with_context(|| path.clone())?;
        let Value::Object(mut schemas) = document["components"]["schemas"].take() else {
            continue;
        };
        let kinds: Vec<(String, String)> = schemas
            .iter()
            .flat_map(|(name, schema)| named(name, schema))
            .collect();
        schemas.values_mut().for_each(close);
        let components = json!({"schemas": Value::Object(schemas)});
        for (name, file) in kinds {
            let schema =
                json!({"$ref": format!("#/components/schemas/{name}"), "components": components});
            fs::write(dir.join(file), schema.to_string())?;
        }
    }
    Ok(())
}

/// Returns the name of a kind's file, by the pattern that `check` passes to kubeconform: the core
/// group is named by the version.
fn file(group: &str, version: &str, kind: &str) -> String {
    let group = if group.is_empty() { version } else { group };
    format!("{}-{group}-{version}.json", kind.to_lowercase())
}

/// Returns the files of a CRD's served versions.
fn files_of(definition: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = text(&definition["spec"]["group"]);
    let kind = text(&definition["spec"]["names"]["kind"]);
    let versions = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten();
    versions
        .filter(|version| version["served"] == true)
        .map(|v| file(&group, &text(&v["name"]), &kind))
        .collect()
}

async fn get(client: &Client, path: &str) -> Result<Value> {
    let request = hyper::Request::get(path).body(Vec::new())?;
    Ok(serde_json::from_str(&client.request_text(request).await?)?)
}

/// Returns the name of a schema, and its file, if it is that of an object's kind.
fn named(name: &str, schema: &Value) -> Option<(String, String)> {
    // DeleteOptions are in the documents of all groups, and list all of these.
    let [kind] = schema["x-kubernetes-group-version-kind"]
        .as_array()?
        .as_slice()
    else {
        return None;
    };
    let part = |name: &str| kind[name].as_str().unwrap_or_default();
    schema["properties"]["metadata"].is_object().then(|| {
        (
            name.to_owned(),
            file(part("group"), part("version"), part("kind")),
        )
    })
}

/// Forbids unknown fields in a schema, like strict field validation of the API server.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if is_closed(fields) {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

fn is_closed(fields: &Map<String, Value>) -> bool {
    fields.get("properties").is_some_and(Value::is_object)
        && fields.get("type") == Some(&json!("object"))
        && !fields.contains_key("additionalProperties")
        && fields.get("x-kubernetes-preserve-unknown-fields") != Some(&json!(true))
        && fields.get("x-kubernetes-embedded-resource") != Some(&json!(true))
}
