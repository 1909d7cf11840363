//! One write of an object that is made for a Gateway.

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, GroupVersionKind};
use kube::core::DynamicObject;
use serde_json::Value;

use super::as_written::differences;
use super::failure::Failure;
use super::request::{applied_over, corrected, create, delete, hand_over, in_time};
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
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ObjectWrite {
    /// Creates the object of this manifest, if none of its name exists.
    Create(Value),
    /// Applies the manifest over the object with this UID.
    Apply(Value, String),
    /// Moves the field at this JSON pointer to another field manager, with its current value.
    HandOver(Existing, &'static str),
    /// Deletes the object.
    Delete(Existing),
}

impl ObjectWrite {
    /// The label value of metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Apply(..) | Self::HandOver(..) => "apply",
            Self::Delete(_) => "delete",
        }
    }

    /// Returns whether the later writes need this one. An object that cannot be changed still
    /// serves, and slices depend on no other slice.
    fn is_needed(&self) -> bool {
        match self {
            Self::Create(document) => document["kind"] != "EndpointSlice",
            Self::Apply(..) => false,
            Self::HandOver(..) | Self::Delete(_) => true,
        }
    }

    /// Sends the request. Returns the object as it is written.
    async fn run(self, client: &Client) -> Result<Option<DynamicObject>, Failure> {
        match self {
            Self::Create(document) => {
                let api = api_of(client, &document);
                let object = in_time(create(&api, document.clone())).await?;
                corrected(&api, object, |object| differences(&document, object))
                    .await
                    .map(Some)
            }
            Self::Apply(document, uid) => {
                let api = api_of(client, &document);
                applied_over(&api, &document, &uid, |object| {
                    differences(&document, object)
                })
                .await
                .map(Some)
            }
            Self::HandOver(there, field) => {
                let (api, name) = (there.api(client), &there.name.name);
                in_time(hand_over(&api, name, &there.uid, field, HANDED_OVER_TO)).await?;
                Ok(None)
            }
            Self::Delete(there) => {
                let (api, name) = (there.api(client), &there.name.name);
                in_time(delete(&api, name, there.uid, DeleteParams::background())).await?;
                Ok(None)
            }
        }
    }
}

impl Existing {
    fn api(&self, client: &Client) -> Api<DynamicObject> {
        api(client, &self.api_version, self.kind, &self.name.namespace)
    }
}

/// Runs the writes in order. Each starts only during a term of the Lease, see [`crate::fence`].
/// After a rejection the writes go on which do not need the rejected one, but nothing is deleted:
/// the existing object may serve in place of the rejected one. `answers` gets the objects as the
/// API server answered.
pub(crate) async fn run(
    client: &Client,
    writes: Vec<ObjectWrite>,
    answers: &mut Vec<DynamicObject>,
) -> Result<(), Failure> {
    let mut refused = None;
    for write in writes {
        if refused.is_some() && matches!(write, ObjectWrite::Delete(_)) {
            continue;
        }
        let is_needed = write.is_needed();
        match write.run(client).await {
            Ok(written) => answers.extend(written),
            Err(
                failure @ (Failure::Refused(_) | Failure::Contested(_) | Failure::Forbidden(_)),
            ) if !is_needed => {
                refused.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    refused.map_or(Ok(()), Err)
}

/// Returns the API of the kind and namespace of a manifest.
fn api_of(client: &Client, document: &Value) -> Api<DynamicObject> {
    fn text<'a>(pointer: &str, document: &'a Value) -> &'a str {
        document
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
    api(
        client,
        text("/apiVersion", document),
        text("/kind", document),
        text("/metadata/namespace", document),
    )
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
            });
            let ended = run(&client, vec![first, slice(), old], &mut Vec::new()).await;
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
