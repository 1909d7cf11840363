//! What an installation needs to go on in another cluster: names with their owners, accounts, CAs
//! and certificates.
//!
//! In: an API server. Out: its objects in the order in which they are created again, as `kubectl
//! create
//! -f` takes them; and the reverse, into a cluster where nothing of it is there yet. What authors
//! write (Gateways, routes, Services) is not among it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::keys::{AUTHORITY, ROOTS, SEAL, TICKETS};
use crate::lease::NAME as LEASE;
use crate::storage::KEEPS;
use crate::write::failure::Failure;
use crate::write::request::in_time;
use gatewright_core::inputs::ISSUED_BY;

/// The Secrets of an installation that have no label: the keys of the connection to Envoys, of the
/// last good state, and of session tickets.
const SECRETS: [&str; 3] = [AUTHORITY, SEAL, TICKETS];
/// The same of ConfigMaps: the configuration, and what Envoys trust.
const CONFIG_MAPS: [&str; 2] = ["gatewright-configuration", ROOTS];
/// The annotation of kubectl with the whole object as it was applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The page size of a list.
const PAGE: u32 = 500;
/// The age of a Lease above which nobody holds it.
const HELD: SignedDuration = SignedDuration::from_secs(60);

/// The reason for which a backup was not made or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A list or an object could not be read.
    #[error("reading {what}: {why}")]
    Read {
        /// What was read.
        what: String,
        /// The error.
        why: Failure,
    },
    /// An object could not be created.
    #[error(
        "creating {object}: {why}; run the command again once that is solved: what is there already stays as it is"
    )]
    Create {
        /// The object.
        object: String,
        /// The error.
        why: Failure,
    },
    /// A controller runs, which would decide meanwhile.
    #[error("a controller holds Lease {0}: scale it to 0 until everything is restored")]
    Runs(String),
    /// Other objects of the same names are there.
    #[error("these are there already, and are others: {}; nothing was restored", .0.join(", "))]
    Taken(Vec<String>),
    /// The file is none of ours.
    #[error("item {0} has no kind of a backup: expected Namespace, ConfigMap or Secret")]
    Kind(usize),
}

/// What was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The number of objects that were created.
    pub created: usize,
    /// The number of objects that were there already, as they are in the backup.
    pub present: usize,
}

/// Reads what an installation needs, in the order of [`restore`].
///
/// # Errors
/// When something cannot be read: half a backup is none.
pub async fn read(client: &Client, installation: &str) -> Result<Vec<Value>, BackupError> {
    let mut objects = Vec::new();
    objects.extend(labelled::<ConfigMap>(client, installation).await?);
    objects.extend(named::<ConfigMap>(client, installation, &CONFIG_MAPS).await?);
    objects.extend(labelled::<Secret>(client, installation).await?);
    objects.extend(named::<Secret>(client, installation, &SECRETS).await?);
    objects.extend(certificates(client).await?);
    let names: BTreeSet<&str> = objects
        .iter()
        .filter_map(|object| object["metadata"]["namespace"].as_str())
        .collect();
    let mut all = Vec::new();
    let namespaces: Api<DynamicObject> = Api::all_with(client.clone(), &resource::<Namespace>());
    for name in names {
        let what = format!("namespace {name}");
        let found = in_time(namespaces.get(name)).await;
        all.push(bare(&found.map_err(|why| unread(&what, why))?, "Namespace"));
    }
    all.extend(objects);
    Ok(all)
}

/// Creates the objects of a backup, each in its turn. Nothing is created if a controller runs, or
/// if an object of the same name is there with another content.
///
/// # Errors
/// When that is so, or the API server refuses an object.
pub async fn restore(
    client: &Client,
    installation: &str,
    objects: &[Value],
) -> Result<Restored, BackupError> {
    is_idle(client, installation).await?;
    let mut missing = Vec::new();
    let mut taken = Vec::new();
    let mut restored = Restored::default();
    for (number, object) in objects.iter().enumerate() {
        let api = api_of(client, object).ok_or(BackupError::Kind(number))?;
        let name = name(object);
        match in_time(api.get_opt(name)).await {
            Ok(None) => missing.push((api, object)),
            Ok(Some(present)) if is_same(object, &present) => restored.present += 1,
            Ok(Some(_)) => taken.push(title(object)),
            // The namespace comes from this backup.
            Err(Failure::Gone) => missing.push((api, object)),
            Err(why) => return Err(unread(&title(object), why)),
        }
    }
    if !taken.is_empty() {
        return Err(BackupError::Taken(taken));
    }
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    for (api, object) in missing {
        let created = match serde_json::from_value::<DynamicObject>(object.clone()) {
            Ok(parsed) => in_time(api.create(&params, &parsed)).await.map(drop),
            Err(error) => Err(Failure::Refused(error.to_string())),
        };
        created.map_err(|why| BackupError::Create {
            object: title(object),
            why,
        })?;
        restored.created += 1;
    }
    Ok(restored)
}

/// Checks that no controller of the installation runs.
async fn is_idle(client: &Client, installation: &str) -> Result<(), BackupError> {
    let api: Api<Lease> = Api::namespaced(client.clone(), installation);
    let what = format!("{installation}/{LEASE}");
    let lease = in_time(api.get_opt(LEASE)).await;
    let lease = lease.map_err(|why| unread(&format!("lease {what}"), why))?;
    let spec = lease.and_then(|lease| lease.spec);
    let holder = spec
        .as_ref()
        .and_then(|spec| spec.holder_identity.as_deref());
    let renewed = spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    let is_recent = renewed.is_some_and(|at| Timestamp::now().duration_since(at.0) < HELD);
    if is_recent && holder.is_some_and(|holder| !holder.is_empty()) {
        return Err(BackupError::Runs(what));
    }
    Ok(())
}

/// The objects of the namespace of an installation that it keeps its state in.
async fn labelled<K>(client: &Client, installation: &str) -> Result<Vec<Value>, BackupError>
where
    K: kube::Resource<DynamicType = ()>,
{
    let api = Api::namespaced_with(client.clone(), installation, &resource::<K>());
    list::<K>(&api, ListParams::default().labels(KEEPS)).await
}

/// The Secrets with certificates that were issued for listeners, of all namespaces.
async fn certificates(client: &Client) -> Result<Vec<Value>, BackupError> {
    let api = Api::all_with(client.clone(), &resource::<Secret>());
    let of_tls = ListParams::default().fields("type=kubernetes.io/tls");
    let mut secrets = list::<Secret>(&api, of_tls).await?;
    secrets.retain(|secret| !secret["metadata"]["annotations"][ISSUED_BY].is_null());
    Ok(secrets)
}

async fn list<K>(api: &Api<DynamicObject>, select: ListParams) -> Result<Vec<Value>, BackupError>
where
    K: kube::Resource<DynamicType = ()>,
{
    let kind = K::kind(&());
    let mut objects = Vec::new();
    let mut page = select.limit(PAGE);
    loop {
        let listed = in_time(api.list(&page)).await;
        let listed = listed.map_err(|why| unread(&kind, why))?;
        objects.extend(listed.items.iter().map(|object| bare(object, &kind)));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// Those of these objects that exist.
async fn named<K>(
    client: &Client,
    installation: &str,
    names: &[&str],
) -> Result<Vec<Value>, BackupError>
where
    K: kube::Resource<DynamicType = ()>,
{
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), installation, &resource::<K>());
    let kind = K::kind(&());
    let mut objects = Vec::new();
    for name in names {
        let found = in_time(api.get_opt(name)).await;
        let what = format!("{kind} {installation}/{name}");
        let found = found.map_err(|why| unread(&what, why))?;
        objects.extend(found.iter().map(|object| bare(object, &kind)));
    }
    Ok(objects)
}

fn resource<K: kube::Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// An object as it is created again: without what belongs to the cluster that it comes from.
fn bare(object: &DynamicObject, kind: &str) -> Value {
    let meta = &object.metadata;
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    annotations.remove(LAST_APPLIED);
    let mut metadata = json!({"name": meta.name});
    if let Some(namespace) = &meta.namespace {
        metadata["namespace"] = json!(namespace);
    }
    if let Some(labels) = &meta.labels {
        metadata["labels"] = json!(labels);
    }
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    let mut bare = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
    for field in CONTENT {
        if let Some(content) = object.data.get(field) {
            bare[field] = content.clone();
        }
    }
    bare
}

/// The fields of a ConfigMap or Secret beside its metadata.
const CONTENT: [&str; 4] = ["type", "data", "binaryData", "immutable"];

/// True if an object has the content that it has in the backup. A namespace has none.
fn is_same(object: &Value, present: &DynamicObject) -> bool {
    CONTENT
        .iter()
        .all(|field| object[field] == *present.data.get(*field).unwrap_or(&Value::Null))
}

fn api_of(client: &Client, object: &Value) -> Option<Api<DynamicObject>> {
    let resource = match object["kind"].as_str()? {
        "Namespace" => return Some(Api::all_with(client.clone(), &resource::<Namespace>())),
        "ConfigMap" => resource::<ConfigMap>(),
        "Secret" => resource::<Secret>(),
        _ => return None,
    };
    let namespace = object["metadata"]["namespace"].as_str()?;
    Some(Api::namespaced_with(client.clone(), namespace, &resource))
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn title(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{}", name(object)),
        None => format!("{kind} {}", name(object)),
    }
}

fn unread(what: &str, why: Failure) -> BackupError {
    BackupError::Read {
        what: what.to_owned(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_created_again_without_its_cluster() {
        let object: DynamicObject = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "x", "namespace": "a", "uid": "u", "resourceVersion": "7", "labels": {"l": "1"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Gateway", "name": "g", "uid": "v"}],
                "annotations": {LAST_APPLIED: "{}", "kept": "yes"}},
            "type": "kubernetes.io/tls", "data": {"tls.crt": "YQ=="}}))
        .expect("an object");
        let bare = bare(&object, "Secret");
        let expected = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "x", "namespace": "a", "labels": {"l": "1"}, "annotations": {"kept": "yes"}},
            "type": "kubernetes.io/tls", "data": {"tls.crt": "YQ=="}});
        assert_eq!(bare, expected);
        assert!(is_same(&bare, &object), "it is the same");
        let mut other = bare.clone();
        other["data"]["tls.crt"] = json!("Yg==");
        assert!(!is_same(&other, &object), "another content");
    }
}
