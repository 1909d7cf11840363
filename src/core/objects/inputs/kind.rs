//! The kinds of objects, and the keys that identify objects.

use std::fmt;

use crate::model::ObjectName;

/// The kinds we read.
#[allow(missing_docs, reason = "the names are the kinds'")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Namespace,
    GatewayClass,
    Gateway,
    ListenerSet,
    /// ListenerSet of Gateway API bundles up to v1.4.
    XListenerSet,
    HTTPRoute,
    GRPCRoute,
    TLSRoute,
    TCPRoute,
    UDPRoute,
    ReferenceGrant,
    BackendTLSPolicy,
    XBackend,
    XBackendTrafficPolicy,
    TrafficPolicy,
    AccessPolicy,
    XTelemetryPolicy,
    DirectResponse,
    TenantGateway,
    GatewayParameters,
    Service,
    EndpointSlice,
    Secret,
    ConfigMap,
    ClusterTrustBundle,
    /// cert-manager's Issuer, which we write and do not read from files.
    Issuer,
    /// cert-manager's Certificate, which we write and do not read from files.
    Certificate,
    /// Watched in a cluster, and not read from files.
    Pod,
    /// Watched in a cluster, and not read from files.
    Node,
}

impl Kind {
    /// All kinds that are parsed, in the order in which they should be read.
    pub const ALL: [Kind; 25] = [
        Kind::Namespace,
        Kind::GatewayClass,
        Kind::Gateway,
        Kind::ListenerSet,
        Kind::XListenerSet,
        Kind::HTTPRoute,
        Kind::GRPCRoute,
        Kind::TLSRoute,
        Kind::TCPRoute,
        Kind::UDPRoute,
        Kind::ReferenceGrant,
        Kind::BackendTLSPolicy,
        Kind::XBackend,
        Kind::XBackendTrafficPolicy,
        Kind::TrafficPolicy,
        Kind::AccessPolicy,
        Kind::XTelemetryPolicy,
        Kind::DirectResponse,
        Kind::TenantGateway,
        Kind::GatewayParameters,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Secret,
        Kind::ConfigMap,
        Kind::ClusterTrustBundle,
    ];

    /// The kind as written in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Namespace => "Namespace",
            Kind::GatewayClass => "GatewayClass",
            Kind::Gateway => "Gateway",
            Kind::ListenerSet => "ListenerSet",
            Kind::XListenerSet => "XListenerSet",
            Kind::HTTPRoute => "HTTPRoute",
            Kind::GRPCRoute => "GRPCRoute",
            Kind::TLSRoute => "TLSRoute",
            Kind::TCPRoute => "TCPRoute",
            Kind::UDPRoute => "UDPRoute",
            Kind::ReferenceGrant => "ReferenceGrant",
            Kind::BackendTLSPolicy => "BackendTLSPolicy",
            Kind::XBackend => "XBackend",
            Kind::XBackendTrafficPolicy => "XBackendTrafficPolicy",
            Kind::TrafficPolicy => "TrafficPolicy",
            Kind::AccessPolicy => "AccessPolicy",
            Kind::XTelemetryPolicy => "XTelemetryPolicy",
            Kind::DirectResponse => "DirectResponse",
            Kind::TenantGateway => "TenantGateway",
            Kind::GatewayParameters => "GatewayParameters",
            Kind::Service => "Service",
            Kind::EndpointSlice => "EndpointSlice",
            Kind::Secret => "Secret",
            Kind::ConfigMap => "ConfigMap",
            Kind::ClusterTrustBundle => "ClusterTrustBundle",
            Kind::Issuer => "Issuer",
            Kind::Certificate => "Certificate",
            Kind::Pod => "Pod",
            Kind::Node => "Node",
        }
    }

    /// The API group as written before the slash of `apiVersion`; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Kind::Namespace
            | Kind::Service
            | Kind::Secret
            | Kind::ConfigMap
            | Kind::Pod
            | Kind::Node => "",
            Kind::EndpointSlice => "discovery.k8s.io",
            Kind::ClusterTrustBundle => "certificates.k8s.io",
            Kind::TenantGateway => "gateway.cozystack.io",
            Kind::Issuer | Kind::Certificate => "cert-manager.io",
            Kind::GatewayParameters
            | Kind::TrafficPolicy
            | Kind::AccessPolicy
            | Kind::DirectResponse => super::OWN_GROUP,
            Kind::XBackend
            | Kind::XBackendTrafficPolicy
            | Kind::XTelemetryPolicy
            | Kind::XListenerSet => EXPERIMENTAL_GROUP,
            _ => GATEWAY_GROUP,
        }
    }

    /// The `apiVersion` to write: the newest version we understand.
    pub fn api_version(self) -> String {
        match self.group() {
            "" => self.versions()[0].to_owned(),
            group => format!("{group}/{}", self.versions()[0]),
        }
    }

    /// The versions we understand, the newest first.
    pub fn versions(self) -> &'static [&'static str] {
        match self {
            Kind::GatewayClass
            | Kind::Gateway
            | Kind::HTTPRoute
            | Kind::ReferenceGrant
            | Kind::ClusterTrustBundle => &["v1", "v1beta1"],
            // The parts that we read have the same shape in all versions.
            Kind::TLSRoute => &["v1", "v1alpha3", "v1alpha2"],
            Kind::TCPRoute | Kind::UDPRoute => &["v1", "v1alpha2"],
            Kind::BackendTLSPolicy => &["v1", "v1alpha3"],
            Kind::TenantGateway
            | Kind::GatewayParameters
            | Kind::XBackend
            | Kind::XBackendTrafficPolicy
            | Kind::TrafficPolicy
            | Kind::AccessPolicy
            | Kind::XTelemetryPolicy
            | Kind::DirectResponse
            | Kind::XListenerSet => &["v1alpha1"],
            _ => &["v1"],
        }
    }

    /// True for policies on Services; a TrafficPolicy is one by its targets. An XBackend is one on
    /// the Service as which it is served.
    pub fn is_policy(self) -> bool {
        matches!(
            self,
            Kind::BackendTLSPolicy
                | Kind::XBackend
                | Kind::XBackendTrafficPolicy
                | Kind::TrafficPolicy
        )
    }

    /// True for policies on Gateways, ListenerSets and routes; a TrafficPolicy is one by its
    /// targets.
    pub fn is_attached_policy(self) -> bool {
        matches!(self, Kind::AccessPolicy | Kind::TrafficPolicy)
    }

    /// True if objects of this kind live in a namespace.
    pub fn namespaced(self) -> bool {
        !matches!(
            self,
            Kind::Namespace | Kind::GatewayClass | Kind::Node | Kind::ClusterTrustBundle
        )
    }
}

/// The API group of the Gateway API.
pub(super) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
/// The API group of kinds that are in the experimental channel only.
const EXPERIMENTAL_GROUP: &str = "gateway.networking.x-k8s.io";

/// Kind and name: what identifies an object. Printed as `httproute default/web`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The kind.
    pub kind: Kind,
    /// The name.
    pub name: ObjectName,
}

impl ObjectKey {
    /// Joins a kind and a name.
    pub fn new(kind: Kind, name: ObjectName) -> Self {
        Self { kind, name }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str().to_lowercase(), self.name)
    }
}

/// The group of our own kinds.
pub const OWN_GROUP: &str = "gatewright.io";
