//! One write of an object whose desired state follows from other objects.

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, GroupVersionKind, Patch};
use kube::core::DynamicObject;
use serde_json::Value;

use super::as_written::{differences, differences_of_patch, is_of_definition};
use super::failure::Failure;
use super::request::{
    self, apply_in_place, apply_over, corrected, create, delete, edit, hand_over, in_time,
    resource, take_over,
};
use crate::defaults::SpecDefaults;
use gatewright_core::inputs::ObjectKey;
use gatewright_core::model::ObjectName;

/// The field manager that owns a field until another writer has it: the API server resets a field
/// without an owner to its default.
const HANDED_OVER_TO: &str = "gatewright-replicas";

/// An existing object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Existing {
    pub(crate) api_version: String,
    pub(crate) kind: &'static str,
    pub(crate) name: ObjectName,
    pub(crate) uid: String,
    /// The resource version, if the write is about no other one.
    pub(crate) version: Option<String>,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ObjectWrite {
    /// Creates the object of this manifest, if none of its name exists.
    Create(Value),
    /// Applies the manifest over the object with this UID.
    Apply(Value, String),
    /// Takes over the ownership of all fields of the spec, then applies the manifest.
    TakeOver(Value, String),
    /// Moves the field at this JSON pointer to another field manager, with its current value.
    HandOver(Existing, &'static str),
    /// Deletes the object.
    Delete(Existing),
    /// Patches labels and annotations.
    Label(ObjectKey, Value),
    /// Patches the status.
    Status(ObjectKey, Value),
}

impl ObjectWrite {
    /// The label value of metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Apply(..) | Self::TakeOver(..) | Self::HandOver(..) => "apply",
            Self::Delete(_) => "delete",
            Self::Label(..) => "label",
            Self::Status(..) => "status",
        }
    }

    /// Returns the manifest or the patch; null where there is none.
    pub(crate) fn document(&self) -> &Value {
        match self {
            Self::Create(document)
            | Self::Apply(document, _)
            | Self::TakeOver(document, _)
            | Self::Label(_, document)
            | Self::Status(_, document) => document,
            Self::HandOver(..) | Self::Delete(_) => &Value::Null,
        }
    }

    /// Returns whether the later writes need this one. An object that cannot be changed still
    /// serves, and slices depend on no other slice.
    fn is_needed(&self) -> bool {
        match self {
            Self::Create(document) => document["kind"] != "EndpointSlice",
            Self::Apply(..) => false,
            Self::TakeOver(..)
            | Self::HandOver(..)
            | Self::Delete(_)
            | Self::Label(..)
            | Self::Status(..) => true,
        }
    }

    /// Sends the request. Returns the object as it is written.
    async fn run(
        self,
        client: &Client,
        defaults: &SpecDefaults,
    ) -> Result<Option<DynamicObject>, Failure> {
        let api = self.api(client);
        let (object, document) = match self {
            Self::Create(document) => (in_time(create(&api, document.clone())).await?, document),
            Self::Apply(document, uid) if is_of_definition(&document) => {
                let object = in_time(apply_over(&api, document.clone(), &uid)).await?;
                (object, document)
            }
            Self::Apply(document, uid) => {
                let object = apply_in_place(&api, &document, &uid, |object| {
                    differences(&document, object, defaults)
                });
                (object.await?, document)
            }
            Self::TakeOver(document, uid) => {
                let object = in_time(take_over(&api, document.clone(), &uid)).await?;
                (object, document)
            }
            Self::HandOver(there, field) => {
                let (name, uid) = (&there.name.name, &there.uid);
                in_time(hand_over(&api, name, uid, field, HANDED_OVER_TO)).await?;
                return Ok(None);
            }
            Self::Delete(there) => {
                let params = DeleteParams::background();
                in_time(delete(
                    &api,
                    &there.name.name,
                    there.uid,
                    there.version,
                    params,
                ))
                .await?;
                return Ok(None);
            }
            Self::Label(key, patch) => {
                let object =
                    in_time(api.patch(&key.name.name, &edit(), &Patch::Merge(&patch))).await?;
                return corrected(&api, object, |object| differences_of_patch(&patch, object))
                    .await
                    .map(Some);
            }
            Self::Status(key, patch) => {
                return in_time(api.patch_status(&key.name.name, &edit(), &Patch::Merge(patch)))
                    .await
                    .map(Some);
            }
        };
        corrected(&api, object, |object| {
            differences(&document, object, defaults)
        })
        .await
        .map(Some)
    }

    /// Returns the API of the kind and namespace of the object.
    fn api(&self, client: &Client) -> Api<DynamicObject> {
        match self {
            Self::Create(document) | Self::Apply(document, _) | Self::TakeOver(document, _) => api(
                client,
                text(document, "/apiVersion"),
                text(document, "/kind"),
                text(document, "/metadata/namespace"),
            ),
            Self::HandOver(there, _) | Self::Delete(there) => api(
                client,
                &there.api_version,
                there.kind,
                &there.name.namespace,
            ),
            Self::Label(key, _) | Self::Status(key, _) => {
                let resource = resource(key.kind, &key.kind.api_version());
                request::api(client.clone(), key, &resource)
            }
        }
    }
}

/// Runs the writes in order. Each starts only during a term of the Lease, see [`crate::fence`].
/// After a rejection the writes go on which do not need the rejected one, but nothing is deleted:
/// the existing object may serve in place of the rejected one. `answers` gets the objects as the
/// API server answered.
pub(crate) async fn run(
    client: &Client,
    writes: Vec<ObjectWrite>,
    defaults: &SpecDefaults,
    answers: &mut Vec<DynamicObject>,
) -> Result<(), Failure> {
    let mut refused = None;
    for write in writes {
        if refused.is_some() && matches!(write, ObjectWrite::Delete(_)) {
            continue;
        }
        let is_needed = write.is_needed();
        match write.run(client, defaults).await {
            Ok(written) => answers.extend(written),
            Err(failure) if failure.is_rejection() && !is_needed => {
                refused.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    refused.map_or(Ok(()), Err)
}

fn text<'a>(document: &'a Value, pointer: &str) -> &'a str {
    let value = document.pointer(pointer);
    value.and_then(Value::as_str).unwrap_or_default()
}

fn api(client: &Client, api_version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hyper::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A client of a server that rejects Services, and the requests that it received.
    fn client() -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let (code, answer) = if path.contains("/services/") {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422,
                    "message": "no", "metadata": {}});
                (StatusCode::UNPROCESSABLE_ENTITY, status)
            } else {
                (
                    StatusCode::OK,
                    document("discovery.k8s.io/v1", "EndpointSlice", "s-v4"),
                )
            };
            notes.lock().expect("nobody panics").push(path);
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = code;
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        (Client::new(service, "default"), asked)
    }

    fn document(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "a", "name": name}})
    }

    #[tokio::test]
    async fn envoys_come_and_go_behind_a_service_whose_change_is_refused() {
        fn slice() -> ObjectWrite {
            let document = document("discovery.k8s.io/v1", "EndpointSlice", "s-v4");
            ObjectWrite::Apply(document, "2".into())
        }
        fn service() -> Value {
            document("v1", "Service", "s")
        }
        for (first, asked_for) in [
            // The refused change, the look at what is there, and the slice.
            (ObjectWrite::Apply(service(), "1".into()), 3),
            // Without the Service there is nothing that slices could be behind.
            (ObjectWrite::Create(service()), 1),
        ] {
            let (client, asked) = client();
            let old = ObjectWrite::Delete(Existing {
                api_version: "v1".to_owned(),
                kind: "Service",
                name: ObjectName::new("a", "old"),
                uid: "3".into(),
                version: None,
            });
            let writes = vec![first, slice(), old];
            let ended = run(&client, writes, &SpecDefaults::default(), &mut Vec::new()).await;
            assert_eq!(
                ended,
                Err(Failure::Refused("no".into())),
                "it is told all the same"
            );
            assert_eq!(
                asked.lock().expect("nobody panics").len(),
                asked_for,
                "{asked:?}"
            );
        }
    }
}
