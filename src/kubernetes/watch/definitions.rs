//! The served definitions: when they change, which fields of the experimental channel they have,
//! and the defaults of derived objects. They are read from the OpenAPI documents of the API groups,
//! as every authenticated client may (ClusterRole `system:discovery`).

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::Api;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::REQUEST_TIMEOUT;
use crate::defaults::{DERIVED, SpecDefaults, spec_schema};
use crate::watch::WatchEvent;
use gatewright_core::channel::Channel;
use gatewright_core::definitions::{BundleVersion, DefinedFields};
use gatewright_core::inputs::Kind;

/// The interval at which the API server is asked.
const INTERVAL: Duration = Duration::from_secs(10);
/// The interval after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The annotation of a definition with its version, and the definitions whose annotations are read.
const BUNDLE_VERSION: &str = "gateway.networking.k8s.io/bundle-version";
const VERSIONED: [&str; 3] = [
    "gatewayclasses.gateway.networking.k8s.io",
    "gateways.gateway.networking.k8s.io",
    "httproutes.gateway.networking.k8s.io",
];

/// What is read of the definitions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServedDefinitions {
    /// The version of the Gateway API that they are from.
    pub bundle: BundleVersion,
    /// Fields of the experimental channel; none in the standard channel.
    pub fields: DefinedFields,
    /// The defaults of derived objects.
    pub defaults: SpecDefaults,
}

/// The address of the OpenAPI document of each version of our API groups. An address contains the
/// hash of its document.
type Addresses = BTreeMap<String, String>;

/// Runs until the receiver is dropped, and sends the definitions of these kinds whenever they
/// change.
pub async fn run(
    client: Client,
    kinds: Vec<Kind>,
    channel: Channel,
    out: mpsc::Sender<WatchEvent>,
) {
    let mut known = None;
    let mut sent = None;
    loop {
        let read = read(&client, &kinds, channel, &mut known).await;
        let delay = match read {
            Ok(definitions) if sent.as_ref() != Some(&definitions) => {
                sent = Some(definitions.clone());
                if out
                    .send(WatchEvent::Definitions(definitions))
                    .await
                    .is_err()
                {
                    return;
                }
                INTERVAL
            }
            Ok(_) => INTERVAL,
            Err(text) => {
                debug!("reading the definitions: {text}");
                RETRY_DELAY
            }
        };
        tokio::select! {
            () = sleep(delay) => {}
            () = out.closed() => return,
        }
    }
}

/// Reads the definitions. `known` has those of the last time, and the addresses of their documents.
async fn read(
    client: &Client,
    kinds: &[Kind],
    channel: Channel,
    known: &mut Option<(Addresses, ServedDefinitions)>,
) -> Result<ServedDefinitions, String> {
    let index = get(client, "/openapi/v3").await?;
    let addresses = addresses(&index, kinds);
    let bundle = bundle(client).await;
    if let Some((before, definitions)) = known
        && *before == addresses
    {
        definitions.bundle = bundle;
        return Ok(definitions.clone());
    }
    let derived: Vec<Kind> = DERIVED
        .into_iter()
        .filter(|kind| kinds.contains(kind))
        .collect();
    let mut documents = Vec::new();
    for group in [Kind::Gateway, Kind::Certificate]
        .into_iter()
        .filter(|kind| derived.contains(kind))
    {
        // A group is missing while no kind of it is served.
        if let Some(address) = addresses.get(&format!("apis/{}", group.api_version())) {
            documents.push(get(client, address).await?);
        }
    }
    let fields = match channel {
        Channel::Experimental => fields(&documents),
        Channel::Standard => DefinedFields::default(),
    };
    let definitions = ServedDefinitions {
        bundle,
        fields,
        defaults: SpecDefaults::read(&documents, &derived),
    };
    *known = Some((addresses, definitions.clone()));
    Ok(definitions)
}

/// Reads the version of the definitions, of their metadata alone. Without the right to read one it
/// is not known.
async fn bundle(client: &Client) -> BundleVersion {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut all = Vec::new();
    for name in VERSIONED {
        match timeout(REQUEST_TIMEOUT, definitions.get_metadata(name)).await {
            Ok(Ok(definition)) => all.push((
                name,
                definition
                    .metadata
                    .annotations
                    .and_then(|mut annotations| annotations.remove(BUNDLE_VERSION)),
            )),
            Ok(Err(error)) => {
                debug!("reading the definition {name}: {error}");
                return BundleVersion::Unread;
            }
            Err(_) => return BundleVersion::Unread,
        }
    }
    BundleVersion::of(
        all.iter()
            .map(|(name, version)| (*name, version.as_deref())),
    )
}

/// Returns the addresses of the documents that have these kinds, in any version.
fn addresses(index: &Value, kinds: &[Kind]) -> Addresses {
    let all = index["paths"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(path, _)| is_ours(path, kinds));
    all.filter_map(|(path, at)| Some((path.clone(), at["serverRelativeURL"].as_str()?.to_owned())))
        .collect()
}

fn is_ours(path: &str, kinds: &[Kind]) -> bool {
    let of = path
        .strip_prefix("apis/")
        .and_then(|path| path.split_once('/'));
    of.is_some_and(|(group, version)| {
        kinds
            .iter()
            .any(|kind| kind.group() == group && kind.versions().contains(&version))
    })
}

/// Reads a document of the API server.
pub(crate) async fn get(client: &Client, address: &str) -> Result<Value, String> {
    let request = Request::get(address)
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    let text = match timeout(REQUEST_TIMEOUT, client.request_text(request)).await {
        Ok(answer) => answer.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("nothing came within {REQUEST_TIMEOUT:?}")),
    };
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Returns the fields that the schema of Gateways has.
fn fields(documents: &[Value]) -> DefinedFields {
    let spec = documents
        .iter()
        .find_map(|document| spec_schema(document, Kind::Gateway.group(), Kind::Gateway.as_str()));
    DefinedFields {
        listener_filters: has("listeners", "filters", &spec),
        routability: has("addresses", "routability", &spec),
    }
}

fn has(list: &str, field: &str, spec: &Option<&Value>) -> bool {
    spec.is_some_and(|spec| {
        spec["properties"][list]["items"]["properties"]
            .get(field)
            .is_some()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_schema_of_gateways_decides() {
        fn kind(kind: &str) -> Value {
            json!([{"group": "gateway.networking.k8s.io", "kind": kind}])
        }
        fn document(listener: &str) -> Value {
            json!({"components": {"schemas": {
                "list": {"x-kubernetes-group-version-kind": kind("GatewayList")},
                "gateway": {"x-kubernetes-group-version-kind": kind("Gateway"), "properties": {"spec": {"properties": {
                    "addresses": {"items": {"properties": {"value": {}}}},
                    "listeners": {"items": {"properties": {listener: {}}}}}}}}}}})
        }
        assert_eq!(
            fields(&[document("filters")]),
            DefinedFields {
                listener_filters: true,
                routability: false
            }
        );
        assert_eq!(fields(&[document("name")]), DefinedFields::default());
        assert_eq!(fields(&[]), DefinedFields::default());
    }

    #[test]
    fn documents_of_versions_that_are_read_count() {
        fn at(hash: &str) -> Value {
            json!({"serverRelativeURL": format!("/openapi/v3/x?hash={hash}")})
        }
        let index = json!({"paths": {"apis/gateway.networking.k8s.io/v1": at("a"),
            "apis/gateway.networking.k8s.io/v9": at("b"), "apis/apps/v1": at("c"), "api/v1": at("d")}});
        let found: Vec<String> = addresses(&index, &[Kind::Gateway, Kind::Service])
            .into_keys()
            .collect();
        assert_eq!(found, ["apis/gateway.networking.k8s.io/v1"]);
    }
}
