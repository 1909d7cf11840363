//! Pods, as much of them as tells an Envoy's identity. A whole one has hundreds of fields, which are neither read nor kept here.

use k8s_openapi::api::core::v1;
use kube::Client;
use kube::api::{Api, ApiResource};
use kube::core::Object;
use serde::Deserialize;

/// A pod.
pub(super) type Pod = Object<PodSpec, PodStatus>;

/// What a pod is to be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodSpec {
    /// The service account that it runs as.
    pub(super) service_account_name: Option<String>,
    /// The node that it runs on, once it is scheduled.
    pub(super) node_name: Option<String>,
}

/// How a pod is.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub(super) phase: Option<String>,
}

/// The pods of a namespace.
pub(super) fn pods(client: Client, namespace: &str) -> Api<Pod> {
    Api::namespaced_with(client, namespace, &ApiResource::erase::<v1::Pod>(&()))
}
