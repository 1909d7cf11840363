//! One write for a TenantGateway.

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::super::FIELD_MANAGER;
use super::label;
use crate::defaults::{Defaults, SpecDefaults};
use crate::live_object::LiveObject;
use crate::managed_fields;
use crate::write::failure::Failure;
use crate::write::request::{api, apply_over, corrected, create, in_time, resource};
use gatewright_core::inputs::ObjectKey;

/// The write to one object.
#[derive(Debug)]
pub(super) enum Job {
    /// Creates the object, if none of its name exists.
    Create(Value),
    /// Applies the manifest over the object of this UID.
    Apply(Value, String),
    /// Takes over the ownership of all fields of the spec, then applies the manifest.
    TakeOver(Value, String),
    /// Deletes the object of this UID and resource version.
    Delete(String, String),
    /// Patches the metadata.
    Label(Value),
    /// Patches the status.
    Status(Value),
}

/// Runs the write. Returns the object as it is now; `None` once it was deleted.
///
/// # Errors
/// When the write fails, and when the API server stored another object than was written.
pub(super) async fn run(
    client: Client,
    key: ObjectKey,
    job: Job,
    defaults: &SpecDefaults,
) -> Result<Option<Box<DynamicObject>>, Failure> {
    let resource = resource(key.kind, &key.kind.api_version());
    let api = api(client, &key, &resource);
    let (name, defaults) = (&*key.name.name, defaults.of(key.kind));
    let object = match job {
        Job::Create(document) => {
            let object = in_time(create(&api, document.clone())).await?;
            as_written(&api, object, &document, defaults).await?
        }
        Job::Apply(document, uid) => {
            let object = in_time(apply_over(&api, document.clone(), &uid)).await?;
            as_written(&api, object, &document, defaults).await?
        }
        Job::TakeOver(document, uid) => {
            let object = in_time(take_over(&api, &resource, document.clone(), &uid)).await?;
            as_written(&api, object, &document, defaults).await?
        }
        Job::Delete(uid, version) => {
            let preconditions = Some(Preconditions {
                uid: Some(uid),
                resource_version: Some(version),
            });
            let params = DeleteParams {
                preconditions,
                ..DeleteParams::default()
            };
            in_time(api.delete(name, &params)).await?;
            return Ok(None);
        }
        Job::Label(patch) => {
            let object = in_time(api.patch(name, &edit(), &Patch::Merge(&patch))).await?;
            corrected(&api, object, |object| label::differences(&patch, object)).await?
        }
        Job::Status(patch) => {
            in_time(api.patch_status(name, &edit(), &Patch::Merge(patch))).await?
        }
    };
    Ok(Some(Box::new(object)))
}

/// Returns the object, once it is as it was written.
async fn as_written(
    api: &Api<DynamicObject>,
    object: DynamicObject,
    document: &Value,
    defaults: Option<&Defaults>,
) -> Result<DynamicObject, Failure> {
    corrected(api, object, |object| {
        LiveObject::new(object)
            .0
            .differences(document, defaults)
            .unwrap_or_default()
    })
    .await
}

fn edit() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

async fn take_over(
    api: &Api<DynamicObject>,
    resource: &ApiResource,
    document: Value,
    uid: &str,
) -> kube::Result<DynamicObject> {
    let name = document["metadata"]["name"].as_str().unwrap_or_default();
    let there = api.get(name).await?;
    let managed = serde_json::to_value(&there.metadata.managed_fields).unwrap_or_default();
    let managed = managed.as_array().map(Vec::as_slice).unwrap_or_default();
    if there.metadata.uid.as_deref() == Some(uid)
        && !managed_fields::others_within(managed, &document["spec"])
    {
        let taken = managed_fields::taken_over(managed, &resource.api_version);
        let claim = json!({"metadata": {"uid": uid, "managedFields": taken,
            "resourceVersion": there.metadata.resource_version}});
        api.patch(name, &edit(), &Patch::Merge(claim)).await?;
    }
    apply_over(api, document, uid).await
}
