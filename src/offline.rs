//! One translation of a set of objects from nothing, as readable documents: what Envoy would get, and the statuses.
//!
//! Pure; `gatewright translate` prints it, and the golden tests compare it.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::envoy;
use crate::inputs::Object;
use crate::translate::{Change, Engine, Resource, Settings, status_document};

/// What a set of objects amounts to.
pub struct Offline {
    /// Envoy's resources, sorted by kind and name, every `Any` opened and private keys redacted.
    pub resources: Vec<Value>,
    /// Every object of ours, with nothing but its status.
    pub statuses: Vec<Value>,
    /// Certificates that an issuer would be asked for.
    pub wishes: Vec<Value>,
    /// Whether every condition of every object is as good as it can be.
    pub ok: bool,
}

/// Translates `objects` at the time `now`.
///
/// # Errors
/// When a resource cannot be rendered, which is a mistake of ours.
pub fn translate(objects: Vec<Object>, settings: Settings, now: SystemTime) -> Result<Offline, envoy::RenderError> {
    let controller = settings.controller.clone();
    let mut engine = Engine::new(settings);
    let delta = engine.apply(objects.into_iter().map(Change::Put).collect(), now);
    let resources = delta.resources.values().flatten().map(render).collect::<Result<_, _>>()?;
    let time = jiff::Timestamp::try_from(now).unwrap_or_default().to_string();
    let statuses: Vec<Value> = engine
        .statuses()
        .map(|(key, status)| {
            let mut metadata = json!({"name": &*key.name.name});
            if key.kind.namespaced() {
                metadata["namespace"] = json!(&*key.name.namespace);
            }
            json!({
                "apiVersion": key.kind.api_version(),
                "kind": key.kind.as_str(),
                "metadata": metadata,
                "status": status_document(&status, &controller, &|_, _| time.clone()),
            })
        })
        .collect();
    let wishes = engine
        .wishes()
        .into_keys()
        .map(|wish| json!({"secret": wish.secret.to_string(), "hostname": wish.hostname.as_str(), "issuer": wish.issuer}))
        .collect();
    let ok = engine.good_and_bad().1 == 0;
    Ok(Offline { resources, statuses, wishes, ok })
}

fn render(resource: &Resource) -> Result<Value, envoy::RenderError> {
    let rendered = match resource {
        Resource::Cluster(cluster) => envoy::render(&envoy::cluster(cluster)),
        Resource::Endpoints(endpoints) => envoy::render(&envoy::endpoints(endpoints)),
        Resource::Secret(secret) => envoy::render(&envoy::secret(secret)),
        Resource::Scope(scope) => envoy::render(&envoy::scope(scope)),
        Resource::Table(table) => envoy::render(&envoy::table(table)),
        Resource::Frontend(frontend) => envoy::render(&envoy::listener(frontend)),
    }?;
    Ok(json!(rendered))
}
