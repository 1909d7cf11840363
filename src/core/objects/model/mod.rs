//! The model: the configuration of a fleet of Envoys, as types with public fields.
//!
//! In: nothing. Out: values that `gatewright-translate` makes and `gatewright-envoy` turns
//! into Envoy resources. No Kubernetes type, no Envoy type, no client, task or clock ever appears
//! here.

mod access;
mod access_log;
mod answer;
mod backend;
mod backend_settings;
mod backend_tls;
mod certificate;
mod client_address;
mod client_validation;
mod condition;
mod export_header;
mod external_auth;
mod family;
mod fleet;
mod frontend;
mod frontend_id;
mod gateway_address;
mod hostname;
mod hostname_grant;
mod identity_headers;
mod listener_filters;
mod login;
mod name;
mod origin;
mod retry_budget;
mod route;
mod session;
mod ticket_keys;
mod tls;
mod tokens;
mod traces;
mod transport;
mod users;
mod xbackend;
mod zone;

pub use access::Enforcement;
pub use access_log::{AccessLog, LogSink, LoggedQuery, LoggedRequests};
pub use answer::Answer;
pub use backend::{
    Addresses, AppProtocol, Backend, BackendId, Cluster, ClusterId, DatagramSettings, Endpoints,
    ServicePort, WeightedEndpoints, ZoneEndpoints,
};
pub use backend_settings::{
    BackendLimits, BackendSettings, HashKey, HealthCheck, LoadBalancing, OutlierDetection, Probe,
    ProxyHeader, RequestHash,
};
pub use backend_tls::{BackendTls, BackendTransport, SubjectAltName, TrustedRoots};
pub use certificate::{Certificate, PrivateKey, Secret, SecretName};
pub use client_address::{ClientAddress, ProxyProtocol, ProxyProtocolMode};
pub use client_validation::{ClientRoots, ClientValidation, RootsName, ValidationMode};
pub use condition::{Condition, ConditionType, Reason, Status, clipped};
pub use export_header::ExportHeader;
pub use external_auth::{AUTH_TIMEOUT, AuthProtocol, CheckPath, ExternalAuth};
pub use family::Family;
pub use fleet::{EnvoyFleet, Fleets};
pub use frontend::{
    CertificateSource, Chain, ChainName, Frontend, FrontendKind, Handler, TLS_CHALLENGES,
    Termination, http3_chain,
};
pub use frontend_id::FrontendId;
pub use gateway_address::{GatewayAddress, Routability, StatusAddress};
pub use hostname::{Hostname, HostnameError};
pub use hostname_grant::HostnameGrant;
pub use identity_headers::{
    IDENTITY_NAMES, IDENTITY_PREFIXES, IdentityHeaders, IdentityRemoval, WRITTEN_FORWARDED,
    is_identity_header,
};
pub use listener_filters::ListenerFilters;
pub use login::{ClientCredentials, GenericSecret, SecretText};
pub use name::ObjectName;
pub use origin::{Origin, OriginScheme};
pub use retry_budget::RetryBudget;
pub use route::{
    Action, Call, Cors, Fraction, HeaderEdits, HeaderMatch, HostOwner, Match, Mirror,
    OtherListeners, PathMatch, PathRewrite, QueryMatch, Redirect, Requests, Retry, Rewrite, Route,
    Rule, Scope, StringMatch, Table, TableId, Target, Thumbprint, Timeouts, VirtualHost,
    WeightedTarget, WideHosts,
};
pub use session::{Session, SessionCookie};
pub use ticket_keys::{TICKET_KEY_BYTES, TicketKeys, TicketSecret};
pub use tls::{TlsParams, TlsVersion};
pub use tokens::{
    ClaimHeader, ClaimType, FetchedKeys, IssuerKeys, Jwks, KeyKind, RequiredClaim, SCOPE,
};
pub use traces::{AttributeValue, KnownAttribute, SamplingRate, SpanAttribute, Tracing};
pub use transport::{Transport, TransportPort};
pub use users::Users;
pub use xbackend::{ServiceInWords, xbackend_of, xbackend_service};
pub use zone::Zone;
