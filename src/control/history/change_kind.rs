//! The kinds of changes, as a label of metrics and in the history.

use serde::{Deserialize, Serialize};

use gatewright_core::inputs::Kind;
use gatewright_core::translate::{Change, Fact};

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

    /// Returns its name: the value of the label.
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

    /// Returns the kind of a change.
    pub(crate) fn of(change: &Change) -> Self {
        match change {
            Change::Object(object) => Self::of_object(object.key().kind),
            Change::Fact(Fact::Challenge(..) | Fact::TlsChallenges(_)) => Self::Certificate,
            Change::Fact(Fact::IssuanceProblem(..) | Fact::ExpectedIssuer(..)) => Self::Certificate,
            Change::Fact(Fact::TrustBundles(_) | Fact::TicketKeys(_)) => Self::Certificate,
            Change::Fact(Fact::Resolved(..)) => Self::Endpoints,
            Change::Fact(Fact::ServiceProblem(..) | Fact::EnvoysProblem(..)) => Self::Gateway,
            Change::Fact(
                Fact::Recorded(..)
                | Fact::Granted(..)
                | Fact::Governed(..)
                | Fact::Withheld(..)
                | Fact::Definitions(_),
            ) => Self::Decision,
        }
    }

    fn of_object(kind: Kind) -> Self {
        match kind {
            Kind::GatewayClass
            | Kind::Gateway
            | Kind::ListenerSet
            | Kind::XListenerSet
            | Kind::GatewayParameters => Self::Gateway,
            Kind::HTTPRoute
            | Kind::GRPCRoute
            | Kind::TLSRoute
            | Kind::DirectResponse
            | Kind::TCPRoute
            | Kind::UDPRoute => Self::Route,
            Kind::ReferenceGrant
            | Kind::BackendTLSPolicy
            | Kind::XBackendTrafficPolicy
            | Kind::TrafficPolicy
            | Kind::AccessPolicy
            | Kind::XTelemetryPolicy => Self::Policy,
            Kind::Service | Kind::XBackend => Self::Service,
            Kind::EndpointSlice | Kind::Pod | Kind::Node => Self::Endpoints,
            Kind::Secret
            | Kind::ConfigMap
            | Kind::ClusterTrustBundle
            | Kind::Issuer
            | Kind::Certificate => Self::Certificate,
            Kind::TenantGateway | Kind::Namespace => Self::Tenant,
        }
    }
}
