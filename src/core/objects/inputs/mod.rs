//! Inputs: the objects that we read, parsed once at the edge into slim types with just the fields
//! that translation needs.
//!
//! In: JSON of one Kubernetes object. Out: an [`Object`], or a [`ParseError`] that names the field.
//! An invalid *value* (a hostname in upper case, an unknown filter) is kept as a value and becomes
//! a condition on the object; only violations of the API server's schema are errors here.

mod access_log;
mod accesspolicy;
mod address;
mod admitted;
mod automaton;
mod backend_health;
mod backendtlspolicy;
mod backendtrafficpolicy;
mod chain_judgement;
mod change;
mod change_kind;
mod class_policies;
pub(crate) mod client_addresses;
mod configmap;
mod configmap_data;
pub(crate) mod direct_response;
mod direct_response_filter;
mod document;
mod duration;
mod export_headers;
pub(crate) mod external_auth;
mod frontend_tls;
mod gateway;
mod grant;
mod grpcroute;
mod htpasswd;
mod httproute;
mod isolated;
mod key_set;
mod kind;
mod kinds;
mod listener_filter;
mod located;
mod made_service;
mod manifest;
mod meta;
mod names;
mod namespace;
mod object;
mod oidc_client;
mod parameters;
mod plain_words;
mod policy;
mod policy_target;
mod re2;
mod reference;
mod route;
mod route_key;
mod schema;
mod secret;
mod selector;
mod service;
mod session;
mod slice_endpoint;
mod substitution;
mod tcproute;
mod telemetry_policy;
mod tenantgateway;
pub(crate) mod text;
mod tlsroute;
mod tracing_rules;
mod traffic_distribution;
mod trafficpolicy;
pub(crate) mod trafficpolicy_value;
mod trust_bundle;
mod unreadable;
mod xbackend;
mod xlistenerset;

pub use access_log::{AccessLogParameters, CollectorRef, SinkParameters};
pub use accesspolicy::ACCESS_POLICY_CRD;
pub use address::{Address, AddressRequest};
pub use backendtlspolicy::{Roots, Validation};
pub use backendtrafficpolicy::BackendTrafficRules;
pub use chain_judgement::ChainJudgement;
pub use change::ObjectChange;
pub use change_kind::ChangeKind;
pub use class_policies::{ClassPolicies, ClassPolicyLimits};
pub use client_addresses::ClientAddresses;
pub use configmap::{CaBundle, CaBundleError, CaCertificate, ConfigMap};
pub use configmap_data::ConfigMapData;
pub use direct_response::{DIRECT_RESPONSE_CRD, DirectResponse, WrittenAnswer, WrittenBody};
pub use document::ParseError;
pub use external_auth::AuthFilter;
pub use frontend_tls::{FrontendTls, FrontendValidation};
pub use gateway::{
    AllowedRoutes, DERIVED_GATEWAY, Gateway, GatewayClass, Infrastructure, Listener, ListenerSet,
    ListenerTls, TlsMode,
};
pub use grant::ReferenceGrant;
pub use htpasswd::{HTPASSWD_TYPE, UsersError};
pub use isolated::{
    Amounts, Autoscaling, ISOLATED_REPLICAS, IsolatedParameters, Resources, TaintEffect,
    Toleration, TolerationOperator,
};
pub use key_set::jwks;
pub use kind::{Content, Kind, OWN_GROUP, ObjectKey, StatusList};
pub use listener_filter::ListenerFilter;
pub use located::{Located, Node, Pod};
pub use made_service::{
    EXPOSES, LentSlice, MANAGED_BY, MANAGER, MadeService, MadeSlice, SLICES_BY, STANDS_ON,
};
pub use meta::Meta;
pub use names::is_label;
pub use namespace::{ATTACHED_BY, GATEWAY_LABEL, HOST_LABEL, Namespace};
pub use object::Object;
pub use oidc_client::{ClientSecretError, OIDC_CLIENT_TYPE};
pub use oidc_client::{credentials, form_encoded};
pub use parameters::{
    AllowedHostnames, DefaultGateways, EscapedSlashes, ExternalTrafficPolicy, FleetKind,
    GatewayParameters, NamedServices, PARAMETERS_CRD, Parameters, ParametersRef, PathParameters,
    PlainHttp, PortProtocol, RouteHostnames, ServiceParameters, ServiceType, SpokenProtocol,
};
pub use plain_words::plain;
pub use policy::{Destination, Policy, PolicyRules};
pub use policy_target::PolicyTarget;
pub use reference::{LocalRef, ParentRef};
pub use route::{BackendRef, Filters, Regexes, Route, RouteKind, RouteKinds, RouteRule};
pub use route_key::{ParentKey, RouteKey, SetKey, SetKind};
pub use secret::{
    CERT_MANAGER, CERTIFICATE_NAME, ISSUED_BY, ISSUED_SERIAL, Secret, SecretError, issued_by,
    parse_certificate,
};
pub use selector::{NamespaceRule, Selector};
pub use service::{EndpointSlice, Service, ServicePortSpec, TargetPort};
pub use session::SessionPersistence;
pub use slice_endpoint::SliceEndpoint;
pub use substitution::Substitution;
pub use tenantgateway::{
    ADDRESSES, CRD, Cloudflare, DIRECTORY, DigitalOcean, Dns01, ISSUER, Invalid, LocalObject, Mode,
    Rfc2136, Route53, SecretKey, Source, Spec, TenantGateway,
};
pub use text::{Unsupported, kept_headers};
pub use tracing_rules::{TracingParameters, TracingRules};
pub use traffic_distribution::TrafficDistribution;
pub use trafficpolicy::TRAFFIC_POLICY_CRD;
pub use trust_bundle::ClusterTrustBundle;
pub use unreadable::Unreadable;
