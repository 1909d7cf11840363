//! The Envoys of Gateways of fleet Isolated: a Deployment for each in our own namespace, with what belongs to it. Pods with our
//! image and an identity that sees private keys stand where tenants create, read and enter nothing.

mod documents;
mod envoys;
mod plan;
mod watch;

pub(crate) use envoys::{Ended, IsolatedEnvoys};
pub use watch::{Told, watch};

use gatewright_core::model::ObjectName;
use serde_json::Value;

/// The annotation with the Gateway, as `namespace/name`: a label cannot hold every name.
const GATEWAY: &str = "gatewright.io/isolated-gateway";
/// The label of what is there for the Envoys of one Gateway, and of the pods: their common name.
const NAME: &str = "gatewright.io/isolated";
/// The annotation with the digest of what was applied.
const APPLIED: &str = "gatewright.io/applied";

/// What the Envoys of a Gateway consist of, in the order in which it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Whom the pods run as, by which they prove whose Envoys they are.
    Account,
    /// Which of them are ready, in its EndpointSlices.
    Service,
    /// How many may be evicted at the same time.
    Budget,
    /// The pods.
    Deployment,
    /// Who says how many pods there are, where parameters have `autoscaling`.
    Autoscaler,
}

impl Part {
    const ALL: [Part; 5] = [Part::Account, Part::Service, Part::Budget, Part::Deployment, Part::Autoscaler];

    /// Group, version and kind.
    fn gvk(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Part::Account => ("", "v1", "ServiceAccount"),
            Part::Service => ("", "v1", "Service"),
            Part::Budget => ("policy", "v1", "PodDisruptionBudget"),
            Part::Deployment => ("apps", "v1", "Deployment"),
            Part::Autoscaler => ("autoscaling", "v2", "HorizontalPodAutoscaler"),
        }
    }

    fn kind(self) -> &'static str {
        self.gvk().2
    }

    fn api_version(self) -> String {
        match self.gvk() {
            ("", version, _) => version.to_owned(),
            (group, version, _) => format!("{group}/{version}"),
        }
    }
}

/// An object of our namespace under a name that may be one of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    uid: String,
    /// The Gateway that it is there for; `None` where it is somebody else's.
    gateway: Option<ObjectName>,
    /// The digest of what was applied last.
    applied: String,
    /// The fields that are still ours.
    ours: Value,
    /// Whether it is being deleted.
    going: bool,
}
