//! The common functions of writes: API and timeout of a request, create, apply and delete with
//! preconditions, and waiting for the end of a write.

use std::fmt::Display;
use std::time::{Duration, Instant};

use gatewright_control::tasks::named;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, GroupVersionKind, Patch, PatchParams, Preconditions,
};
use kube::core::{DynamicObject, ObjectMeta};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use tracing::{Instrument, info_span};

use crate::deviation::{Deviation, removals, replacements};
use crate::managed_fields;
use crate::write::failure::Failure;
use crate::{FIELD_MANAGER, REQUEST_TIMEOUT};
use gatewright_control::event::{Event, Severity};
use gatewright_core::inputs::{Kind, ObjectKey};

/// A resource version that no object has: an apply with it creates an object, and never changes an
/// existing one.
const NONE_YET: &str = "1";

/// Returns the API resource of a kind, in the version of `api_version`. The plurals of the kinds
/// that we write are regular.
pub(crate) fn resource(kind: Kind, api_version: &str) -> ApiResource {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    ApiResource::from_gvk(&GroupVersionKind::gvk(kind.group(), version, kind.as_str()))
}

/// Returns the API of an object's kind and namespace.
pub(crate) fn api(client: Client, key: &ObjectKey, resource: &ApiResource) -> Api<DynamicObject> {
    if key.kind.namespaced() {
        Api::namespaced_with(client, &key.name.namespace, resource)
    } else {
        Api::all_with(client, resource)
    }
}

/// Creates an object by server-side apply; fails where one of that name exists.
pub(crate) async fn create(
    api: &Api<DynamicObject>,
    mut document: Value,
) -> kube::Result<DynamicObject> {
    document["metadata"]["resourceVersion"] = json!(NONE_YET);
    apply(api, &document).await
}

/// Applies a manifest over the object with this UID; fails for any other object of the name.
pub(crate) async fn apply_over(
    api: &Api<DynamicObject>,
    mut document: Value,
    uid: &str,
) -> kube::Result<DynamicObject> {
    document["metadata"]["uid"] = json!(uid);
    apply(api, &document).await
}

async fn apply(api: &Api<DynamicObject>, document: &Value) -> kube::Result<DynamicObject> {
    let name = document["metadata"]["name"].as_str().unwrap_or_default();
    api.patch(
        name,
        &PatchParams::apply(FIELD_MANAGER).force(),
        &Patch::Apply(document),
    )
    .await
}

/// Applies a manifest over the object with this UID, also where the key of a list's item has to be
/// changed.
///
/// The key of an item cannot be applied: where an admission policy changed the port of a Service,
/// an apply adds a second one of the same name, which the API server refuses. The changed fields
/// are set in place first then.
pub(crate) async fn apply_in_place(
    api: &Api<DynamicObject>,
    document: &Value,
    uid: &str,
    differences: impl Fn(&DynamicObject) -> Vec<Deviation>,
) -> Result<DynamicObject, Failure> {
    match in_time(apply_over(api, document.clone(), uid)).await {
        Err(Failure::Refused(text)) => {
            let name = document["metadata"]["name"].as_str().unwrap_or_default();
            // A patch of nothing returns the object; the right to get it is not needed.
            let nothing = Patch::Merge(json!({"metadata": {"uid": uid}}));
            let Ok(live) = in_time(api.patch(name, &PatchParams::default(), &nothing)).await else {
                return Err(Failure::Refused(text));
            };
            let changed = replacements(&differences(&live));
            if changed.is_empty() || in_time(patch_version(api, &live, changed)).await.is_err() {
                return Err(Failure::Refused(text));
            }
            in_time(apply_over(api, document.clone(), uid)).await
        }
        applied => applied,
    }
}

/// Takes over the ownership of all fields of the spec of the object with this UID, then applies a
/// manifest over it.
pub(crate) async fn take_over(
    api: &Api<DynamicObject>,
    document: Value,
    uid: &str,
) -> kube::Result<DynamicObject> {
    let name = document["metadata"]["name"].as_str().unwrap_or_default();
    let there = api.get(name).await?;
    let managed = managed_fields::of(&there);
    if there.metadata.uid.as_deref() == Some(uid)
        && !managed_fields::others_within(&managed, &document["spec"])
    {
        let version = document["apiVersion"].as_str().unwrap_or_default();
        let taken = managed_fields::taken_over(&managed, version);
        let mut claim = json!({"metadata": {"uid": uid, "managedFields": taken,
            "resourceVersion": there.metadata.resource_version}});
        if let Some(owners) = with_owner(&there.metadata, &document) {
            claim["metadata"]["ownerReferences"] = owners;
        }
        api.patch(name, &edit(), &Patch::Merge(claim)).await?;
    }
    apply_over(api, document, uid).await
}

/// Returns the owner references of an object with those of a manifest, if it has no controlling
/// owner: an admission policy admits only writes of objects that have one.
fn with_owner(there: &ObjectMeta, document: &Value) -> Option<Value> {
    let owners = there.owner_references.iter().flatten();
    if owners.clone().any(|owner| owner.controller == Some(true)) {
        return None;
    }
    let wanted = document["metadata"]["ownerReferences"].as_array()?;
    let there = owners.map(|owner| json!(owner));
    Some(there.chain(wanted.iter().cloned()).collect())
}

/// The parameters of a patch that is not an apply.
pub(crate) fn edit() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Returns an object that was just written, once it is as desired: fields that were added to it are
/// removed, since an apply leaves fields that nobody owns.
///
/// # Errors
/// When it differs nevertheless: an admission policy or webhook changes what the API server
/// accepts.
pub(crate) async fn corrected(
    api: &Api<DynamicObject>,
    mut object: DynamicObject,
    differences: impl Fn(&DynamicObject) -> Vec<Deviation>,
) -> Result<DynamicObject, Failure> {
    let mut found = differences(&object);
    if found.iter().any(Deviation::is_added) {
        object = in_time(patch_version(api, &object, removals(&found))).await?;
        found = differences(&object);
    }
    match found.first() {
        None => Ok(object),
        Some(difference) => Err(Failure::Contested(difference.to_string())),
    }
}

/// Applies operations of a JSON Patch to this version of an object.
async fn patch_version(
    api: &Api<DynamicObject>,
    object: &DynamicObject,
    operations: Vec<Value>,
) -> kube::Result<DynamicObject> {
    let meta = &object.metadata;
    api.patch(
        meta.name.as_deref().unwrap_or_default(),
        &edit(),
        &of_version(meta, operations),
    )
    .await
}

/// Returns a JSON Patch of these operations that is a conflict for another version of the object.
pub(crate) fn of_version(meta: &ObjectMeta, operations: Vec<Value>) -> Patch<()> {
    let same = [
        ("uid", &meta.uid),
        ("resourceVersion", &meta.resource_version),
    ];
    let same =
        same.map(|(field, value)| json!({"op": "replace", "path": format!("/metadata/{field}"), "value": value}));
    let operations: Value = same.into_iter().chain(operations).collect();
    Patch::Json(serde_json::from_value(operations).expect("they are operations of a JSON Patch"))
}

/// Transfers the ownership of a field of the object with this name and UID to another field
/// manager, with its current value, so that our next apply may omit the field without changing it
/// (Kubernetes, Server-Side Apply, "Transferring ownership").
pub(crate) async fn hand_over(
    api: &Api<DynamicObject>,
    name: &str,
    uid: &str,
    field: &str,
    manager: &str,
) -> kube::Result<()> {
    let live = api.get(name).await?;
    let (version, kind) = live
        .types
        .map(|types| (types.api_version, types.kind))
        .unwrap_or_default();
    let mut document =
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "uid": uid}});
    let value = live.data.pointer(field).cloned().unwrap_or_default();
    let nested = field
        .rsplit('/')
        .filter(|name| !name.is_empty())
        .fold(value, |value, name| json!({name: value}));
    if let (Value::Object(document), Value::Object(nested)) = (&mut document, nested) {
        document.extend(nested);
    }
    api.patch(name, &PatchParams::apply(manager), &Patch::Apply(&document))
        .await
        .map(drop)
}

/// Deletes the object with this UID, if it still exists; only in this resource version, if one is
/// given.
pub(crate) async fn delete(
    api: &Api<DynamicObject>,
    name: &str,
    uid: String,
    resource_version: Option<String>,
    params: DeleteParams,
) -> kube::Result<()> {
    let preconditions = Some(Preconditions {
        uid: Some(uid),
        resource_version,
    });
    match api
        .delete(
            name,
            &DeleteParams {
                preconditions,
                ..params
            },
        )
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

tokio::task_local! {
    /// The time limit of each request of a task.
    static LIMIT: Duration;
}

/// The longest time limit of a request: the API server waits as long for an admission webhook.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);

/// Returns the time limit of the requests about an object after this many consecutive failures. A
/// request that is given up starts anew, so that only a longer limit ends where admission webhooks
/// are slow.
pub(crate) fn limit_after(failures: u32) -> Duration {
    (REQUEST_TIMEOUT * 2_u32.saturating_pow(failures.min(16))).min(LONGEST)
}

/// Awaits requests of which each has this time limit.
pub(crate) async fn within<T>(limit: Duration, requests: impl Future<Output = T>) -> T {
    LIMIT.scope(limit, requests).await
}

/// Awaits a request that nobody repeats soon, for as long as admission webhooks may take.
pub(crate) async fn patiently<T>(
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failure> {
    within(LONGEST, in_time(request)).await
}

/// Awaits a request, with a timeout.
pub(crate) async fn in_time<T>(
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failure> {
    let limit = LIMIT.try_with(|limit| *limit).unwrap_or(REQUEST_TIMEOUT);
    match timeout(limit, request).await {
        Ok(answer) => answer.map_err(|error| Failure::of(&error)),
        Err(_) => Err(Failure::Unavailable(format!("no answer within {limit:?}"))),
    }
}

/// Logs that a request about an object failed. The caller does so once for as long as the failure
/// lasts.
pub(crate) fn failed(object: &ObjectKey, reason: &'static str, text: String) {
    Event::RequestFailed {
        object: object.clone(),
        reason,
        text,
    }
    .log(Severity::Debug);
}

/// Spawns a request, in a span that adds its object to every log line.
pub(crate) fn begin<T: Send + 'static>(
    requests: &mut JoinSet<T>,
    what: &'static str,
    object: &impl Display,
    request: impl Future<Output = T> + Send + 'static,
) {
    let span = info_span!("request", what, %object);
    requests.spawn(named("request to the API server", request.instrument(span)));
}

/// Waits until a write has ended; `None` at the time `due`.
pub(crate) async fn ended_or_due<T: Send + 'static>(
    writes: &mut JoinSet<T>,
    due: Option<Instant>,
) -> Option<T> {
    let turn = async {
        match due {
            Some(at) => sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    };
    let ended = async {
        match writes.join_next().await {
            Some(done) => done.expect("a write does not panic and is not aborted"),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        done = ended => Some(done),
        () = turn => None,
    }
}
