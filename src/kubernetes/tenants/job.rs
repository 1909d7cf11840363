//! One write for a TenantGateway.

use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::super::FIELD_MANAGER;
use crate::managed_fields;
use crate::write::failure::Failure;
use crate::write::request::{api, apply_over, create, in_time, resource};
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
pub(super) async fn run(client: Client, key: ObjectKey, job: Job) -> Result<Option<Box<DynamicObject>>, Failure> {
    Ok(in_time(carry_out(client, &key, job)).await?.map(Box::new))
}

async fn carry_out(client: Client, key: &ObjectKey, job: Job) -> kube::Result<Option<DynamicObject>> {
    let resource = resource(key.kind, &key.kind.api_version());
    let api = api(client, key, &resource);
    let name = &*key.name.name;
    let edit = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match job {
        Job::Create(document) => create(&api, document).await.map(Some),
        Job::Apply(document, uid) => apply_over(&api, document, &uid).await.map(Some),
        Job::TakeOver(document, uid) => {
            let there = api.get(name).await?;
            let managed = serde_json::to_value(&there.metadata.managed_fields).unwrap_or_default();
            let managed = managed.as_array().map(Vec::as_slice).unwrap_or_default();
            if there.metadata.uid.as_deref() == Some(&uid) && !managed_fields::others_within(managed, &document["spec"])
            {
                let taken = managed_fields::taken_over(managed, &resource.api_version);
                let claim = json!({"metadata": {"uid": uid, "managedFields": taken,
                    "resourceVersion": there.metadata.resource_version}});
                api.patch(name, &edit, &Patch::Merge(claim)).await?;
            }
            apply_over(&api, document, &uid).await.map(Some)
        }
        Job::Delete(uid, version) => {
            let preconditions = Some(Preconditions { uid: Some(uid), resource_version: Some(version) });
            api.delete(name, &DeleteParams { preconditions, ..DeleteParams::default() }).await.map(|_| None)
        }
        Job::Label(patch) => api.patch(name, &edit, &Patch::Merge(patch)).await.map(Some),
        Job::Status(patch) => api.patch_status(name, &edit, &Patch::Merge(patch)).await.map(Some),
    }
}
