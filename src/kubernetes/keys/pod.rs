//! Pods, reduced to the fields that identify an Envoy. The hundreds of other fields are neither
//! parsed nor stored.

use k8s_openapi::api::core::v1;
use kube::Client;
use kube::api::{Api, ApiResource};
use kube::core::Object;
use serde::Deserialize;

/// A pod.
pub(super) type Pod = Object<PodSpec, PodStatus>;

/// The parsed fields of a pod's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodSpec {
    /// The service account that it runs as.
    pub(super) service_account_name: Option<String>,
    /// The node that it runs on, once it is scheduled.
    pub(super) node_name: Option<String>,
}

/// The parsed fields of a pod's status.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub(super) phase: Option<String>,
}

/// Returns the API of the pods of a namespace.
pub(super) fn pods(client: Client, namespace: &str) -> Api<Pod> {
    Api::namespaced_with(client, namespace, &ApiResource::erase::<v1::Pod>(&()))
}
