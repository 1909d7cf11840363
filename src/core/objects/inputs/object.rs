//! An object of any kind that we read.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice as K8sEndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::accesspolicy::AccessPolicySpec;
use super::admitted::salvage;
use super::configmap;
use super::direct_response::DirectResponseSpec;
use super::document::{Fields, read, text};
use super::trafficpolicy::{TrafficPolicy, TrafficPolicySpec};
use super::trust_bundle;
use super::xlistenerset::xlistenerset;
use super::{
    AttachedPolicy, ClusterTrustBundle, ConfigMap, Destination, DirectResponse, EndpointSlice,
    Gateway, GatewayClass, GatewayParameters, Kind, ListenerSet, Located, Meta, Namespace,
    ObjectKey, ParseError, Policy, ReferenceGrant, Route, Secret, Service, SetKind,
    TelemetryPolicy, TenantGateway, TrafficRules, Validation,
};
use crate::gateway_api as gw;
use crate::limits::ObjectLimits;
use crate::model::ObjectName;

/// The label of routes by which cert-manager answers ACME challenges
/// (`acme.cert-manager.io/http01-solver`).
pub(super) const SOLVER: &str = "acme.cert-manager.io/http01-solver";

/// The annotation of routes whose requests are counted by themselves, with the value `Route`.
const TRAFFIC_METRICS: &str = "gatewright.io/traffic-metrics";

/// An object of any kind that we read.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are the kinds'")]
pub enum Object {
    Namespace(Namespace),
    GatewayClass(GatewayClass),
    Gateway(Gateway),
    ListenerSet(ListenerSet),
    Route(Route),
    ReferenceGrant(ReferenceGrant),
    Policy(Policy),
    TelemetryPolicy(TelemetryPolicy),
    AttachedPolicy(AttachedPolicy),
    DirectResponse(DirectResponse),
    TenantGateway(Box<TenantGateway>),
    GatewayParameters(GatewayParameters),
    Service(Service),
    EndpointSlice(EndpointSlice),
    Secret(Secret),
    ConfigMap(ConfigMap),
    ClusterTrustBundle(ClusterTrustBundle),
    Pod(Located),
    Node(Located),
}

impl From<TrafficPolicy> for Object {
    fn from(policy: TrafficPolicy) -> Self {
        match policy {
            TrafficPolicy::OfServices(policy) => Self::Policy(policy),
            TrafficPolicy::OfRoutes(policy) => Self::AttachedPolicy(policy),
        }
    }
}

/// True if the requests of a route with this metadata are counted by themselves.
fn is_counted(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(TRAFFIC_METRICS))
        .is_some_and(|value| value == "Route")
}

impl Object {
    /// Reads one object. Unknown fields, wrong types and missing required fields are errors, as
    /// with strict validation by an API server.
    pub fn parse(value: Value) -> Result<Self, ParseError> {
        Self::parse_with(&value, Fields::Known)
    }

    /// Reads one object that an API server has admitted, whose schema may be newer than ours or of
    /// the experimental channel: unknown fields are ignored, and of an object with an unknown value
    /// the rest is read.
    pub fn parse_admitted(value: Value) -> Result<Self, ParseError> {
        let whole = Self::parse_with(&value, Fields::Any);
        whole.or_else(|why| salvage(&value, why, Fields::Any))
    }

    /// Drops content that no object may use because it is over the limits; the reason is kept in
    /// its place.
    pub fn drop_over_limit(&mut self, limits: &ObjectLimits) {
        match self {
            Self::ConfigMap(map) => configmap::drop_over_limit(&mut map.bundle, limits),
            Self::ClusterTrustBundle(trust) => {
                configmap::drop_over_limit(&mut trust.bundle, limits)
            }
            _ => {}
        }
    }

    pub(super) fn parse_with(value: &Value, fields: Fields) -> Result<Self, ParseError> {
        let api_version = text(value, "apiVersion").ok_or(ParseError::NoType("apiVersion"))?;
        let kind = text(value, "kind").ok_or(ParseError::NoType("kind"))?;
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let Some(known) = Kind::ALL
            .into_iter()
            .find(|k| k.as_str() == kind && k.group() == group)
        else {
            return Err(ParseError::UnknownKind {
                kind: shown(kind),
                api_version: shown(api_version),
                expected: Kind::ALL.map(Kind::as_str).join(", "),
            });
        };
        if !known.versions().contains(&version) {
            let kind = known.as_str();
            let expected = known.api_version();
            let why = ParseError::UnknownVersion {
                kind,
                found: api_version.to_owned(),
                expected,
            };
            return Err(if known == Kind::Secret {
                why.without_values()
            } else {
                why
            });
        }
        Ok(match known {
            Kind::Namespace => {
                let object: core::Namespace = read(value, fields)?;
                let name = Meta::read(known, &object.metadata)?.name.name.clone();
                let labels = object.metadata.labels.unwrap_or_default();
                Object::Namespace(Namespace {
                    name,
                    labels,
                    annotations: object.metadata.annotations.unwrap_or_default(),
                    uid: object.metadata.uid.unwrap_or_default(),
                })
            }
            Kind::GatewayClass => {
                let object: Manifest<gw::gatewayclasses::GatewayClassSpec> = read(value, fields)?;
                Object::GatewayClass(GatewayClass::read(
                    Meta::read(known, &object.metadata)?,
                    object.spec,
                ))
            }
            Kind::Gateway => {
                let object: Manifest<gw::gateways::GatewaySpec> = read(value, fields)?;
                let meta = Meta::read(known, &object.metadata)?;
                Object::Gateway(Gateway::read(meta, object.metadata, object.spec)?)
            }
            Kind::ListenerSet => {
                let object: Manifest<gw::listenersets::ListenerSetSpec> = read(value, fields)?;
                let meta = Meta::read(known, &object.metadata)?;
                Object::ListenerSet(ListenerSet::read(SetKind::Stable, meta, object.spec)?)
            }
            Kind::XListenerSet => Object::ListenerSet(xlistenerset(value, fields)?),
            Kind::HTTPRoute => {
                let object: Manifest<gw::httproutes::HttpRouteSpec> = read(value, fields)?;
                let mut route =
                    Route::read_http(Meta::read(known, &object.metadata)?, object.spec)?;
                route.challenge = object
                    .metadata
                    .labels
                    .as_ref()
                    .is_some_and(|labels| labels.contains_key(SOLVER));
                route.counted = is_counted(&object.metadata);
                Object::Route(route)
            }
            Kind::GRPCRoute => {
                let object: Manifest<gw::grpcroutes::GrpcRouteSpec> = read(value, fields)?;
                let mut route =
                    Route::read_grpc(Meta::read(known, &object.metadata)?, object.spec)?;
                route.counted = is_counted(&object.metadata);
                Object::Route(route)
            }
            Kind::TenantGateway => {
                Object::TenantGateway(Box::new(TenantGateway::parse_with(value, fields)?))
            }
            Kind::GatewayParameters => {
                Object::GatewayParameters(GatewayParameters::parse(value, fields)?)
            }
            Kind::TLSRoute => {
                let object: Manifest<gw::tlsroutes::TlsRouteSpec> = read(value, fields)?;
                Object::Route(Route::read_tls(
                    Meta::read(known, &object.metadata)?,
                    object.spec,
                )?)
            }
            Kind::TCPRoute => {
                let object: Manifest<gw::tcproutes::TcpRouteSpec> = read(value, fields)?;
                Object::Route(Route::read_tcp(
                    Meta::read(known, &object.metadata)?,
                    object.spec,
                )?)
            }
            Kind::UDPRoute => {
                let object: Manifest<gw::udproutes::UdpRouteSpec> = read(value, fields)?;
                Object::Route(Route::read_udp(
                    Meta::read(known, &object.metadata)?,
                    object.spec,
                )?)
            }
            Kind::ReferenceGrant => {
                let object: Manifest<gw::referencegrants::ReferenceGrantSpec> =
                    read(value, fields)?;
                Object::ReferenceGrant(ReferenceGrant::read(
                    Meta::read(known, &object.metadata)?,
                    object.spec,
                ))
            }
            Kind::BackendTLSPolicy => {
                let object: Manifest<gw::backendtlspolicies::BackendTlsPolicySpec> =
                    read(value, fields)?;
                let meta = Meta::read(known, &object.metadata)?;
                Object::Policy(Validation::policy(meta, object.spec)?)
            }
            Kind::XBackendTrafficPolicy => {
                let object: Manifest<gw::xbackendtrafficpolicies::XBackendTrafficPolicySpec> =
                    read(value, fields)?;
                let meta = Meta::read(known, &object.metadata)?;
                Object::Policy(TrafficRules::policy(meta, object.spec)?)
            }
            Kind::XBackend => {
                let object: Manifest<gw::xbackends::XBackendSpec> = read(value, fields)?;
                let meta = Meta::read(known, &object.metadata)?;
                Object::Policy(Destination::policy(meta, object.spec)?)
            }
            Kind::TrafficPolicy => {
                let object: Manifest<TrafficPolicySpec> = read(value, fields)?;
                let meta = Meta::read(known, &object.metadata)?;
                object.spec.policy(meta)?.into()
            }
            Kind::AccessPolicy => {
                let object: Manifest<AccessPolicySpec> = read(value, fields)?;
                let meta = Meta::read(known, &object.metadata)?;
                Object::AttachedPolicy(object.spec.policy(meta)?)
            }
            Kind::XTelemetryPolicy => {
                // A header of the requests to the collector may be a credential.
                let object: Manifest<gw::xtelemetrypolicies::XTelemetryPolicySpec> =
                    read(value, fields).map_err(ParseError::without_values)?;
                let meta = Meta::read(known, &object.metadata)?;
                Object::TelemetryPolicy(TelemetryPolicy::read(meta, object.spec)?)
            }
            Kind::DirectResponse => {
                let object: Manifest<DirectResponseSpec> = read(value, fields)?;
                let meta = Meta::read(known, &object.metadata)?;
                Object::DirectResponse(DirectResponse::read(meta, object.spec))
            }
            Kind::Service => {
                let object: core::Service = read(value, fields)?;
                Object::Service(Service::read(Meta::read(known, &object.metadata)?, object)?)
            }
            Kind::EndpointSlice => {
                let object: K8sEndpointSlice = read(value, fields)?;
                let meta = Meta::read(known, &object.metadata)?;
                Object::EndpointSlice(EndpointSlice::read(meta, object)?)
            }
            Kind::Secret => {
                let object: core::Secret =
                    read(value, fields).map_err(ParseError::without_values)?;
                Object::Secret(Secret::read(Meta::read(known, &object.metadata)?, object))
            }
            Kind::ConfigMap => {
                let object: core::ConfigMap = read(value, fields)?;
                Object::ConfigMap(ConfigMap::read(
                    Meta::read(known, &object.metadata)?,
                    object,
                ))
            }
            Kind::ClusterTrustBundle => {
                let object: trust_bundle::Written = read(value, fields)?;
                let meta = Meta::read(known, &object.metadata)?;
                Object::ClusterTrustBundle(ClusterTrustBundle::read(meta, &object))
            }
            Kind::Issuer | Kind::Certificate | Kind::Pod | Kind::Node => {
                unreachable!("they are not among the kinds that are parsed")
            }
        })
    }

    /// The creation time, of the kinds whose age decides between rivals.
    pub fn created_mut(&mut self) -> Option<&mut i64> {
        match self {
            Object::Gateway(o) => Some(&mut o.meta.created),
            Object::ListenerSet(o) => Some(&mut o.meta.created),
            Object::Route(o) => Some(&mut o.meta.created),
            Object::Policy(o) => Some(&mut o.meta.created),
            Object::TelemetryPolicy(o) => Some(&mut o.meta.created),
            Object::AttachedPolicy(o) => Some(&mut o.meta.created),
            Object::TenantGateway(o) => Some(&mut o.created),
            Object::Namespace(_)
            | Object::GatewayClass(_)
            | Object::ReferenceGrant(_)
            | Object::DirectResponse(_)
            | Object::GatewayParameters(_)
            | Object::Service(_)
            | Object::EndpointSlice(_)
            | Object::Secret(_)
            | Object::ConfigMap(_)
            | Object::ClusterTrustBundle(_)
            | Object::Pod(_)
            | Object::Node(_) => None,
        }
    }

    /// Kind and name.
    pub fn key(&self) -> ObjectKey {
        let (kind, name) = match self {
            Object::Namespace(o) => (Kind::Namespace, ObjectName::new("", o.name.clone())),
            Object::GatewayClass(o) => (Kind::GatewayClass, o.meta.name.clone()),
            Object::Gateway(o) => (Kind::Gateway, o.meta.name.clone()),
            Object::ListenerSet(o) => (o.kind.kind(), o.meta.name.clone()),
            Object::Route(o) => (o.kind.kind(), o.meta.name.clone()),
            Object::ReferenceGrant(o) => (Kind::ReferenceGrant, o.meta.name.clone()),
            Object::Policy(o) => (o.kind(), o.meta.name.clone()),
            Object::TelemetryPolicy(o) => (Kind::XTelemetryPolicy, o.meta.name.clone()),
            Object::AttachedPolicy(o) => (o.kind(), o.meta.name.clone()),
            Object::DirectResponse(o) => (Kind::DirectResponse, o.meta.name.clone()),
            Object::TenantGateway(o) => (Kind::TenantGateway, o.name.clone()),
            Object::GatewayParameters(o) => (Kind::GatewayParameters, o.meta.name.clone()),
            Object::Service(o) => (Kind::Service, o.meta.name.clone()),
            Object::EndpointSlice(o) => (Kind::EndpointSlice, o.meta.name.clone()),
            Object::Secret(o) => (Kind::Secret, o.name.clone()),
            Object::ConfigMap(o) => (Kind::ConfigMap, o.name.clone()),
            Object::ClusterTrustBundle(o) => (Kind::ClusterTrustBundle, o.name.clone()),
            Object::Pod(o) => (Kind::Pod, o.name.clone()),
            Object::Node(o) => (Kind::Node, o.name.clone()),
        };
        ObjectKey { kind, name }
    }
}

/// YAML adds indented lines below a string to that string, by a space, or by a line feed
/// after an empty line: in a Secret these may be a private key.
fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn shown(text: &str) -> String {
    if is_name(text) { text } else { "(not shown)" }.to_owned()
}

/// An object as written, with a specification `S`. Its status is not read: it is ours or not
/// needed.
#[derive(Deserialize)]
pub(super) struct Manifest<S> {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: S,
}
