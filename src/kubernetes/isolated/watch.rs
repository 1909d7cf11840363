//! Watches our own namespace: the objects of Gateways' own Envoys, and the PodTemplate that their
//! pods are made from.

use gatewright_core::inputs::{MANAGED_BY, MANAGER};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::ISOLATED_PREFIX;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{PodTemplate, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ApiResource};
use kube::core::DynamicObject;
use kube::runtime::watcher::Config;
use kube::{Client, Resource};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{APPLIED, GATEWAY, IsolatedKind, NAME, Observed};
use crate::managed_fields;
use crate::watch::peers::{self, PeerEvent};
use crate::write::as_written::content;

/// An event of the watch.
#[derive(Debug)]
pub enum IsolatedEvent {
    /// An object of this name was added or changed, or was deleted (`None`).
    Object(IsolatedKind, String, Option<Observed>),
    /// The list of this kind is complete.
    Synced(IsolatedKind),
    /// The PodTemplate was added or changed, or was deleted (`None`).
    Template(Option<Value>),
    /// The list of PodTemplates is complete, so it is known whether the template exists.
    TemplateSynced,
}

/// Sends events of all objects of this namespace that have the prefix of our names, and of the
/// PodTemplate called `template`, until the receiver is dropped.
pub async fn watch(
    client: Client,
    namespace: String,
    template: String,
    out: mpsc::Sender<IsolatedEvent>,
) {
    let here = (client.clone(), namespace.as_str(), &out);
    tokio::join!(
        follow::<ServiceAccount>(IsolatedKind::Account, here.clone()),
        follow::<Service>(IsolatedKind::Service, here.clone()),
        follow::<PodDisruptionBudget>(IsolatedKind::Budget, here.clone()),
        follow::<Deployment>(IsolatedKind::Deployment, here.clone()),
        follow::<HorizontalPodAutoscaler>(IsolatedKind::Autoscaler, here.clone()),
        follow_template(client, &namespace, &template, &out),
    );
}

async fn follow<K>(
    kind: IsolatedKind,
    (client, namespace, out): (Client, &str, &mpsc::Sender<IsolatedEvent>),
) where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    // Untyped: fields that our version of the API does not know are compared as well.
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, namespace, &ApiResource::erase::<K>(&()));
    // Objects that we do not own are included, since their name may conflict with one of ours.
    let convert = |event: PeerEvent<DynamicObject>| match event {
        PeerEvent::Applied(object) => {
            let name = object
                .metadata
                .name
                .clone()
                .filter(|name| name.starts_with(ISOLATED_PREFIX))?;
            let observed = observed(&object);
            Some(IsolatedEvent::Object(kind, name, Some(observed)))
        }
        PeerEvent::Deleted(name) if name.starts_with(ISOLATED_PREFIX) => {
            Some(IsolatedEvent::Object(kind, name, None))
        }
        PeerEvent::Deleted(_) => None,
        PeerEvent::Synced => Some(IsolatedEvent::Synced(kind)),
    };
    let what = format!("{}s of Gateways' own Envoys", kind.as_str());
    peers::follow(api, Config::default(), &what, out.clone(), convert).await;
}

async fn follow_template(
    client: Client,
    namespace: &str,
    template: &str,
    out: &mpsc::Sender<IsolatedEvent>,
) {
    // Untyped: fields that our version of the API does not know must reach the pods.
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, namespace, &ApiResource::erase::<PodTemplate>(&()));
    let config = Config::default().fields(&format!("metadata.name={template}"));
    peers::follow(
        api,
        config,
        "the template of Gateways' own Envoys",
        out.clone(),
        |event| {
            Some(match event {
                PeerEvent::Applied(object) => {
                    IsolatedEvent::Template(object.data.get("template").cloned())
                }
                PeerEvent::Deleted(_) => IsolatedEvent::Template(None),
                PeerEvent::Synced => IsolatedEvent::TemplateSynced,
            })
        },
    )
    .await;
}

/// Extracts the fields that the plan reads.
pub(super) fn observed(object: &DynamicObject) -> Observed {
    let meta = &object.metadata;
    let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key));
    let annotation = |key: &str| {
        meta.annotations
            .as_ref()
            .and_then(|annotations| annotations.get(key))
    };
    let is_ours =
        label(MANAGED_BY).is_some_and(|by| by == MANAGER) && label(NAME) == meta.name.as_ref();
    let gateway = annotation(GATEWAY)
        .and_then(|gateway| gateway.split_once('/'))
        .filter(|_| is_ours);
    Observed {
        uid: meta.uid.clone().unwrap_or_default(),
        gateway: gateway.map(|(namespace, name)| ObjectName::new(namespace, name)),
        applied: annotation(APPLIED).cloned().unwrap_or_default(),
        ours: managed_fields::ours(&managed_fields::of(object)).unwrap_or_default(),
        content: content(&object.data),
        deleting: meta.deletion_timestamp.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_with_our_labels_that_name_a_gateway_are_ours() {
        fn read(change: fn(&mut Value)) -> Observed {
            let mut meta = json!({"name": "gatewright-isolated-edge-0", "uid": "u",
                "labels": {MANAGED_BY: MANAGER, NAME: "gatewright-isolated-edge-0"},
                "annotations": {GATEWAY: "a/edge", APPLIED: "d"}});
            change(&mut meta);
            observed(&serde_json::from_value(json!({"metadata": meta})).expect("an object"))
        }
        let ours = read(|_| ());
        assert_eq!(
            ours.gateway,
            Some(ObjectName::new("a", "edge")),
            "the Gateway is read"
        );
        assert_eq!(&*ours.uid, "u", "its UID is read");
        assert_eq!(&*ours.applied, "d", "the digest is read");
        let theirs: [fn(&mut Value); 4] = [
            |meta| meta["labels"] = json!({}),
            |meta| meta["labels"][NAME] = json!("another"),
            |meta| meta["annotations"] = json!({}),
            |meta| meta["annotations"][GATEWAY] = json!("edge"),
        ];
        for change in theirs {
            assert_eq!(read(change).gateway, None);
        }
    }
}
