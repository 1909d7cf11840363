//! Discovery of fields: which fields of the experimental channel the served definitions have, from the OpenAPI document of
//! their API group. Every authenticated client may read it (ClusterRole `system:discovery`).

use std::time::Duration;

use hyper::Request;
use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::REQUEST_TIMEOUT;
use crate::watch::WatchEvent;
use gatewright_core::definitions::DefinedFields;
use gatewright_core::inputs::Kind;

/// The interval at which the API server is asked.
const INTERVAL: Duration = Duration::from_secs(10);
/// The interval after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Runs until the receiver is dropped, and sends the fields whenever they change.
pub async fn run(client: Client, out: mpsc::Sender<WatchEvent>) {
    let (mut known, mut address) = (None, None);
    loop {
        let delay = match read(&client, &mut address).await {
            Ok(Some(fields)) if known != Some(fields) => {
                known = Some(fields);
                if out.send(WatchEvent::Fields(fields)).await.is_err() {
                    return;
                }
                INTERVAL
            }
            Ok(_) => INTERVAL,
            Err(text) => {
                debug!("reading the fields of the Gateway API's definitions: {text}");
                RETRY_DELAY
            }
        };
        tokio::select! {
            () = sleep(delay) => {}
            () = out.closed() => return,
        }
    }
}

/// Reads the fields; `None` while the document has the address of the last one, which contains its hash.
async fn read(client: &Client, last: &mut Option<String>) -> Result<Option<DefinedFields>, String> {
    let index = get(client, "/openapi/v3").await?;
    let group = format!("apis/{}", Kind::Gateway.api_version());
    // The group is missing while no kind of it is served.
    let address = index["paths"][&group]["serverRelativeURL"].as_str().unwrap_or_default().to_owned();
    if last.as_ref() == Some(&address) {
        return Ok(None);
    }
    let fields = match address.is_empty() {
        true => DefinedFields::default(),
        false => fields(&get(client, &address).await?),
    };
    *last = Some(address);
    Ok(Some(fields))
}

async fn get(client: &Client, address: &str) -> Result<Value, String> {
    let request = Request::get(address).body(Vec::new()).map_err(|error| error.to_string())?;
    let text = match timeout(REQUEST_TIMEOUT, client.request_text(request)).await {
        Ok(answer) => answer.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("nothing came within {REQUEST_TIMEOUT:?}")),
    };
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Returns the fields that the schema of Gateways has.
fn fields(document: &Value) -> DefinedFields {
    let is_gateway = |schema: &&Value| {
        schema["x-kubernetes-group-version-kind"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] == Kind::Gateway.as_str()))
    };
    let mut schemas = document["components"]["schemas"].as_object().into_iter().flat_map(|schemas| schemas.values());
    let spec = schemas.find(is_gateway).map(|schema| &schema["properties"]["spec"]["properties"]);
    let has = |list: &str, field: &str| spec.is_some_and(|spec| spec[list]["items"]["properties"].get(field).is_some());
    DefinedFields { listener_filters: has("listeners", "filters"), routability: has("addresses", "routability") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_schema_of_gateways_decides() {
        let document = |listener: &str| {
            json!({"components": {"schemas": {
                "list": {"x-kubernetes-group-version-kind": [{"kind": "GatewayList"}]},
                "gateway": {"x-kubernetes-group-version-kind": [{"kind": "Gateway"}], "properties": {"spec": {"properties": {
                    "addresses": {"items": {"properties": {"value": {}}}},
                    "listeners": {"items": {"properties": {listener: {}}}}}}}}}}})
        };
        assert_eq!(fields(&document("filters")), DefinedFields { listener_filters: true, routability: false });
        assert_eq!(fields(&document("name")), DefinedFields::default());
        assert_eq!(fields(&json!({})), DefinedFields::default());
    }
}
