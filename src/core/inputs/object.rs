//! An object of any kind we read.

use std::fmt;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice as K8sEndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::admitted::salvage;
use super::names::object_name;
use super::{
    BackendTlsPolicy, ConfigMap, EndpointSlice, Gateway, GatewayClass, GatewayParameters, ListenerSet, Located,
    Namespace, ReferenceGrant, Route, Secret, Service, TenantGateway,
};
use crate::gateway_api as gw;
use crate::model::ObjectName;

/// The kinds we read.
#[allow(missing_docs, reason = "the names are the kinds'")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Namespace,
    GatewayClass,
    Gateway,
    ListenerSet,
    HTTPRoute,
    GRPCRoute,
    TLSRoute,
    TCPRoute,
    UDPRoute,
    ReferenceGrant,
    BackendTLSPolicy,
    TenantGateway,
    GatewayParameters,
    Service,
    EndpointSlice,
    Secret,
    ConfigMap,
    /// cert-manager's, which we write and do not read from files.
    Issuer,
    /// The same.
    Certificate,
    /// Watched in a cluster, and not read from files.
    Pod,
    /// The same.
    Node,
}

impl Kind {
    /// All kinds that are parsed, in the order in which they are best read.
    pub const ALL: [Kind; 17] = [
        Kind::Namespace,
        Kind::GatewayClass,
        Kind::Gateway,
        Kind::ListenerSet,
        Kind::HTTPRoute,
        Kind::GRPCRoute,
        Kind::TLSRoute,
        Kind::TCPRoute,
        Kind::UDPRoute,
        Kind::ReferenceGrant,
        Kind::BackendTLSPolicy,
        Kind::TenantGateway,
        Kind::GatewayParameters,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Secret,
        Kind::ConfigMap,
    ];

    /// The kind as written in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Namespace => "Namespace",
            Kind::GatewayClass => "GatewayClass",
            Kind::Gateway => "Gateway",
            Kind::ListenerSet => "ListenerSet",
            Kind::HTTPRoute => "HTTPRoute",
            Kind::GRPCRoute => "GRPCRoute",
            Kind::TLSRoute => "TLSRoute",
            Kind::TCPRoute => "TCPRoute",
            Kind::UDPRoute => "UDPRoute",
            Kind::ReferenceGrant => "ReferenceGrant",
            Kind::BackendTLSPolicy => "BackendTLSPolicy",
            Kind::TenantGateway => "TenantGateway",
            Kind::GatewayParameters => "GatewayParameters",
            Kind::Service => "Service",
            Kind::EndpointSlice => "EndpointSlice",
            Kind::Secret => "Secret",
            Kind::ConfigMap => "ConfigMap",
            Kind::Issuer => "Issuer",
            Kind::Certificate => "Certificate",
            Kind::Pod => "Pod",
            Kind::Node => "Node",
        }
    }

    /// The API group as written before the slash of `apiVersion`; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Kind::Namespace | Kind::Service | Kind::Secret | Kind::ConfigMap | Kind::Pod | Kind::Node => "",
            Kind::EndpointSlice => "discovery.k8s.io",
            Kind::TenantGateway => "gateway.cozystack.io",
            Kind::Issuer | Kind::Certificate => "cert-manager.io",
            Kind::GatewayParameters => super::OWN_GROUP,
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
            Kind::GatewayClass | Kind::Gateway | Kind::HTTPRoute | Kind::ReferenceGrant => &["v1", "v1beta1"],
            // What we read of it has the same shape in all of them.
            Kind::TLSRoute => &["v1", "v1alpha3", "v1alpha2"],
            Kind::TCPRoute | Kind::UDPRoute => &["v1", "v1alpha2"],
            Kind::TenantGateway | Kind::GatewayParameters => &["v1alpha1"],
            _ => &["v1"],
        }
    }

    /// Whether objects of this kind live in a namespace.
    pub fn namespaced(self) -> bool {
        !matches!(self, Kind::Namespace | Kind::GatewayClass | Kind::Node)
    }
}

/// The API group of the Gateway API.
pub(crate) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The label of routes by which cert-manager answers challenges (`acme.cert-manager.io/http01-solver`).
pub(super) const SOLVER: &str = "acme.cert-manager.io/http01-solver";

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

/// What we keep of an object's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Namespace and name.
    pub name: ObjectName,
    /// `metadata.generation`; 1 where a manifest has none.
    pub generation: i64,
    /// `metadata.creationTimestamp` in seconds since the epoch; 0 where a manifest has none.
    pub created: i64,
}

impl Meta {
    pub(super) fn read(kind: Kind, meta: &ObjectMeta) -> Result<Self, ParseError> {
        Ok(Self {
            name: object_name(kind, meta)?,
            generation: meta.generation.unwrap_or(1),
            created: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        })
    }
}

/// An object of any kind we read.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are the kinds'")]
pub enum Object {
    Namespace(Namespace),
    GatewayClass(GatewayClass),
    Gateway(Gateway),
    ListenerSet(ListenerSet),
    Route(Route),
    ReferenceGrant(ReferenceGrant),
    BackendTlsPolicy(BackendTlsPolicy),
    TenantGateway(Box<TenantGateway>),
    GatewayParameters(GatewayParameters),
    Service(Service),
    EndpointSlice(EndpointSlice),
    Secret(Secret),
    ConfigMap(ConfigMap),
    Pod(Located),
    Node(Located),
}

/// Why a document is no object of ours.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// No `apiVersion` or `kind`.
    #[error("no {0}: every manifest needs apiVersion and kind")]
    NoType(&'static str),
    /// A kind we do not read.
    #[error("kind {kind} of {api_version} is not read: expected one of {expected}")]
    UnknownKind {
        /// As written.
        kind: String,
        /// As written.
        api_version: String,
        /// What we read.
        expected: String,
    },
    /// A version of a known kind that we do not read.
    #[error("{kind}: apiVersion {found} is not read: use {expected}")]
    UnknownVersion {
        /// The kind.
        kind: &'static str,
        /// As written.
        found: String,
        /// What to write.
        expected: String,
    },
    /// No name.
    #[error("no metadata.name")]
    NoName,
    /// A name that no object can have.
    #[error(
        "{field}: {found} is no name: lower-case letters, digits, '-' and, in names of objects, '.', at most 253 characters \
         (63 of a namespace; RFC 1123)"
    )]
    InvalidName {
        /// Which field.
        field: &'static str,
        /// As written, printable.
        found: String,
    },
    /// A field that the kind's schema does not have.
    #[error("unknown field {0}")]
    UnknownField(String),
    /// The schema refuses it.
    #[error("{0}")]
    Schema(String),
}

impl Object {
    /// Reads one object. Unknown fields, wrong types and missing required fields are errors, as with strict
    /// validation by an API server.
    pub fn parse(value: Value) -> Result<Self, ParseError> {
        Self::parse_with(&value, Fields::Known)
    }

    /// Reads one object that an API server has admitted. Its schema may be newer than ours, or of the experimental
    /// channel: fields that we do not know are passed over, and of what holds a value that we do not know the rest is
    /// read.
    pub fn parse_admitted(value: Value) -> Result<Self, ParseError> {
        Self::admitted(&value).or_else(|why| salvage(&value, why))
    }

    /// The same, as a whole.
    pub(super) fn admitted(value: &Value) -> Result<Self, ParseError> {
        Self::parse_with(value, Fields::Any)
    }

    fn parse_with(value: &Value, fields: Fields) -> Result<Self, ParseError> {
        let api_version = text(value, "apiVersion").ok_or(ParseError::NoType("apiVersion"))?;
        let kind = text(value, "kind").ok_or(ParseError::NoType("kind"))?;
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let Some(known) = Kind::ALL.into_iter().find(|k| k.as_str() == kind && k.group() == group) else {
            return Err(ParseError::UnknownKind {
                kind: kind.to_owned(),
                api_version: api_version.to_owned(),
                expected: Kind::ALL.map(Kind::as_str).join(", "),
            });
        };
        if !known.versions().contains(&version) {
            return Err(ParseError::UnknownVersion {
                kind: known.as_str(),
                found: api_version.to_owned(),
                expected: known.api_version(),
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
                Object::GatewayClass(GatewayClass::read(Meta::read(known, &object.metadata)?, object.spec))
            }
            Kind::Gateway => {
                let object: Manifest<gw::gateways::GatewaySpec> = read(value, fields)?;
                Object::Gateway(Gateway::read(Meta::read(known, &object.metadata)?, object.spec)?)
            }
            Kind::ListenerSet => {
                let object: Manifest<gw::listenersets::ListenerSetSpec> = read(value, fields)?;
                Object::ListenerSet(ListenerSet::read(Meta::read(known, &object.metadata)?, object.spec)?)
            }
            Kind::HTTPRoute => {
                let object: Manifest<gw::httproutes::HttpRouteSpec> = read(value, fields)?;
                let mut route = Route::read_http(Meta::read(known, &object.metadata)?, object.spec)?;
                let solves = |labels: &std::collections::BTreeMap<String, String>| labels.contains_key(SOLVER);
                route.challenge = object.metadata.labels.as_ref().is_some_and(solves);
                Object::Route(route)
            }
            Kind::GRPCRoute => {
                let object: Manifest<gw::grpcroutes::GrpcRouteSpec> = read(value, fields)?;
                Object::Route(Route::read_grpc(Meta::read(known, &object.metadata)?, object.spec)?)
            }
            Kind::TenantGateway => Object::TenantGateway(Box::new(TenantGateway::parse_with(value, fields)?)),
            Kind::GatewayParameters => Object::GatewayParameters(GatewayParameters::parse(value, fields)?),
            Kind::TLSRoute => {
                let object: Manifest<gw::tlsroutes::TlsRouteSpec> = read(value, fields)?;
                Object::Route(Route::read_tls(Meta::read(known, &object.metadata)?, object.spec)?)
            }
            Kind::TCPRoute => {
                let object: Manifest<gw::tcproutes::TcpRouteSpec> = read(value, fields)?;
                Object::Route(Route::read_tcp(Meta::read(known, &object.metadata)?, object.spec)?)
            }
            Kind::UDPRoute => {
                let object: Manifest<gw::udproutes::UdpRouteSpec> = read(value, fields)?;
                Object::Route(Route::read_udp(Meta::read(known, &object.metadata)?, object.spec)?)
            }
            Kind::ReferenceGrant => {
                let object: Manifest<gw::referencegrants::ReferenceGrantSpec> = read(value, fields)?;
                Object::ReferenceGrant(ReferenceGrant::read(Meta::read(known, &object.metadata)?, object.spec))
            }
            Kind::BackendTLSPolicy => {
                let object: Manifest<gw::backendtlspolicies::BackendTlsPolicySpec> = read(value, fields)?;
                let meta = Meta::read(known, &object.metadata)?;
                Object::BackendTlsPolicy(BackendTlsPolicy::read(meta, object.spec)?)
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
                let object: core::Secret = read(value, fields)?;
                Object::Secret(Secret::read(Meta::read(known, &object.metadata)?, object))
            }
            Kind::ConfigMap => {
                let object: core::ConfigMap = read(value, fields)?;
                Object::ConfigMap(ConfigMap::read(Meta::read(known, &object.metadata)?, object))
            }
            Kind::Issuer | Kind::Certificate | Kind::Pod | Kind::Node => {
                unreachable!("they are not among the kinds that are parsed")
            }
        })
    }

    /// Kind and name.
    pub fn key(&self) -> ObjectKey {
        let (kind, name) = match self {
            Object::Namespace(o) => (Kind::Namespace, ObjectName::new("", o.name.clone())),
            Object::GatewayClass(o) => (Kind::GatewayClass, o.meta.name.clone()),
            Object::Gateway(o) => (Kind::Gateway, o.meta.name.clone()),
            Object::ListenerSet(o) => (Kind::ListenerSet, o.meta.name.clone()),
            Object::Route(o) => (o.kind.kind(), o.meta.name.clone()),
            Object::ReferenceGrant(o) => (Kind::ReferenceGrant, o.meta.name.clone()),
            Object::BackendTlsPolicy(o) => (Kind::BackendTLSPolicy, o.meta.name.clone()),
            Object::TenantGateway(o) => (Kind::TenantGateway, o.name.clone()),
            Object::GatewayParameters(o) => (Kind::GatewayParameters, o.meta.name.clone()),
            Object::Service(o) => (Kind::Service, o.meta.name.clone()),
            Object::EndpointSlice(o) => (Kind::EndpointSlice, o.meta.name.clone()),
            Object::Secret(o) => (Kind::Secret, o.name.clone()),
            Object::ConfigMap(o) => (Kind::ConfigMap, o.name.clone()),
            Object::Pod(o) => (Kind::Pod, o.name.clone()),
            Object::Node(o) => (Kind::Node, o.name.clone()),
        };
        ObjectKey { kind, name }
    }
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str().filter(|text| !text.is_empty())
}

/// An object as it is written, with a specification `S`. Its status is ours or of no interest, and is not read.
#[derive(Deserialize)]
struct Manifest<S> {
    metadata: ObjectMeta,
    spec: S,
}

/// Which fields may be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fields {
    /// Those of the type; another is an error.
    Known,
    /// Any.
    Any,
}

pub(super) fn read<T: DeserializeOwned>(value: &Value, fields: Fields) -> Result<T, ParseError> {
    if fields == Fields::Any {
        return T::deserialize(value).map_err(|e| ParseError::Schema(e.to_string()));
    }
    let mut unknown = None;
    let mut note = |path: serde_ignored::Path<'_>| {
        // `?` marks an Option that was stepped into; people do not write it. What every object carries at its top
        // and our types leave out (apiVersion, kind, status) is no mistake.
        let path = path.to_string().replace(".?", "").replace("?.", "");
        let top = path.split('.').next().unwrap_or_default();
        if !matches!(top, "apiVersion" | "kind" | "status") && unknown.is_none() {
            unknown = Some(path);
        }
    };
    let object = serde_ignored::deserialize(value, &mut note).map_err(|e| ParseError::Schema(e.to_string()))?;
    match unknown {
        Some(path) => Err(ParseError::UnknownField(path)),
        None => Ok(object),
    }
}
