//! The kinds of changes, as a label of metrics and in the history.

use serde::{Deserialize, Serialize};

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// The first state after a start.
    Start,
    /// A GatewayClass, Gateway, ListenerSet or GatewayParameters.
    Gateway,
    /// A route.
    Route,
    /// A policy, or a ReferenceGrant.
    Policy,
    /// A Service.
    Service,
    /// An EndpointSlice, the place of a pod or node, or the addresses of a name.
    Endpoints,
    /// A Secret, ConfigMap or ClusterTrustBundle, an answer to a challenge, or the validity of a
    /// certificate.
    Certificate,
    /// A TenantGateway or Namespace.
    Tenant,
    /// A decision of ours: who owns a hostname, what a tenant is granted.
    Decision,
}

impl ChangeKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Start,
        Self::Gateway,
        Self::Route,
        Self::Policy,
        Self::Service,
        Self::Endpoints,
        Self::Certificate,
        Self::Tenant,
        Self::Decision,
    ];

    /// The name: the value of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Gateway => "gateway",
            Self::Route => "route",
            Self::Policy => "policy",
            Self::Service => "service",
            Self::Endpoints => "endpoints",
            Self::Certificate => "certificate",
            Self::Tenant => "tenant",
            Self::Decision => "decision",
        }
    }
}
