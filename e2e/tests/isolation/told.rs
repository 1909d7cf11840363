//! Statuses of the running program's objects, and the resource usage of the program and its Envoy.

use anyhow::{Context, Result, bail};
use e2e::usage;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::site::{LIMIT, Site};

/// An HTTPRoute as JSON, which can represent every character.
pub(crate) fn http_route(
    namespace: &str,
    name: &str,
    hostnames: &[String],
    rules: &Value,
) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"parentRefs": [{"name": "edge", "namespace": "infra"}], "hostnames": hostnames, "rules": rules},
    })
}

/// Returns documents as the text of one manifest.
pub(crate) fn manifest(documents: &[Value]) -> String {
    // JSON may contain DEL unescaped, YAML only as an escape.
    let text = |document: &Value| document.to_string().replace('\u{7f}', "\\u007f");
    documents
        .iter()
        .map(|document| text(document) + "\n---\n")
        .collect()
}

impl Site {
    /// Returns the statuses of all objects.
    pub(crate) fn statuses(&self) -> Result<Vec<Value>> {
        let (_, text) = self.ask(&["status", "-o", "json"])?;
        let told: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        Ok(told["items"].as_array().context("a list")?.clone())
    }

    /// Returns the conditions of a route at its first parent, as `Type=Status Reason: message`.
    pub(crate) fn conditions(&self, namespace: &str, name: &str) -> Result<Vec<String>> {
        let statuses = self.statuses()?;
        let its = |item: &&Value| {
            item["metadata"]["namespace"] == namespace && item["metadata"]["name"] == name
        };
        let item = statuses
            .iter()
            .filter(|item| item["kind"] == "HTTPRoute")
            .find(its);
        let conditions =
            item.and_then(|item| item["status"]["parents"][0]["conditions"].as_array());
        let text = |condition: &Value| {
            let of = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            format!(
                "{}={} {}: {}",
                of("type"),
                of("status"),
                of("reason"),
                of("message")
            )
        };
        Ok(conditions.into_iter().flatten().map(text).collect())
    }

    /// Waits until a condition of a route contains this text, and returns it.
    pub(crate) async fn told(&self, namespace: &str, name: &str, text: &str) -> Result<String> {
        let until = Instant::now() + LIMIT;
        loop {
            let conditions = self.conditions(namespace, name)?;
            if let Some(condition) = conditions.iter().find(|condition| condition.contains(text)) {
                return Ok(condition.clone());
            }
            if Instant::now() > until {
                bail!(
                    "{namespace}/{name} is not told {text:?}: {conditions:#?}\n{}",
                    self.program.output()
                );
            }
            sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Waits until every condition of a namespace's routes is True and none contains this text of
    /// another's.
    pub(crate) async fn says_nothing_of(&self, namespace: &str, text: &str) -> Result<()> {
        let until = Instant::now() + LIMIT;
        loop {
            let statuses = self.statuses()?;
            let own: Vec<&Value> = statuses
                .iter()
                .filter(|item| item["metadata"]["namespace"] == namespace)
                .collect();
            let told = serde_json::to_string(&own)?;
            if !own.is_empty() && !told.contains(text) && !told.contains("\"False\"") {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("{namespace} is told: {told}");
            }
            sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Returns the memory of the Envoy, in bytes.
    pub(crate) fn envoy_resident(&self) -> Result<u64> {
        usage::memory(self.envoy()?, "VmRSS")
    }
}
