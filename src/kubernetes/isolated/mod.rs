//! The Envoys of Gateways of fleet Isolated: a Deployment for each in our own namespace, with the
//! objects that belong to it. These pods have our image and an identity that can read private keys,
//! so they run in a namespace where tenants cannot create, read or exec.

mod documents;
mod envoys;
mod plan;
mod watch;

pub(crate) use envoys::{IsolatedEnvoys, WorkerEvent};
pub use watch::{IsolatedEvent, watch};

use gatewright_core::model::ObjectName;
use serde_json::Value;

/// The annotation with the Gateway, as `namespace/name`: a label value is too short for some names.
const GATEWAY: &str = "gatewright.io/isolated-gateway";
/// The label of the objects and the pods of one Gateway's Envoys: the name that they share.
const NAME: &str = "gatewright.io/isolated";
/// The annotation with the digest of the manifest that was last applied.
const APPLIED: &str = "gatewright.io/applied";

/// An object of a Gateway's own Envoys. The order of the variants is the order of the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IsolatedKind {
    /// The ServiceAccount that the pods run as; it identifies the Gateway whose Envoys they are.
    Account,
    /// The headless Service; its EndpointSlices say which pods are ready.
    Service,
    /// The PodDisruptionBudget.
    Budget,
    /// The Deployment of the pods.
    Deployment,
    /// The HorizontalPodAutoscaler, where the parameters have `autoscaling`.
    Autoscaler,
}

impl IsolatedKind {
    const ALL: [IsolatedKind; 5] = [
        IsolatedKind::Account,
        IsolatedKind::Service,
        IsolatedKind::Budget,
        IsolatedKind::Deployment,
        IsolatedKind::Autoscaler,
    ];

    /// Group, version and kind of the object.
    fn gvk(self) -> (&'static str, &'static str, &'static str) {
        match self {
            IsolatedKind::Account => ("", "v1", "ServiceAccount"),
            IsolatedKind::Service => ("", "v1", "Service"),
            IsolatedKind::Budget => ("policy", "v1", "PodDisruptionBudget"),
            IsolatedKind::Deployment => ("apps", "v1", "Deployment"),
            IsolatedKind::Autoscaler => ("autoscaling", "v2", "HorizontalPodAutoscaler"),
        }
    }

    fn as_str(self) -> &'static str {
        self.gvk().2
    }

    fn api_version(self) -> String {
        match self.gvk() {
            ("", version, _) => version.to_owned(),
            (group, version, _) => format!("{group}/{version}"),
        }
    }
}

/// An observed object of our namespace, with a name that may be one of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    uid: String,
    /// The Gateway that the object belongs to; `None` for an object that we do not own.
    gateway: Option<ObjectName>,
    /// The digest of the manifest that was last applied.
    applied: String,
    /// The fields that our field manager still owns.
    ours: Value,
    /// The object itself, without metadata and status.
    content: Value,
    /// True if the object is being deleted (`deletionTimestamp` is set).
    deleting: bool,
}
