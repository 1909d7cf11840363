//! Our nouns: what a fleet of Envoys is to serve, in plain public fields.
//!
//! In: nothing. Out: values that [`crate::translate`] makes and [`crate::envoy`] turns into Envoy resources.
//! No Kubernetes type, no Envoy type, no client, task or clock ever appears here.

mod backend;
mod certificate;
mod condition;
mod frontend;
mod hostname;
mod name;
mod reached;
mod route;
mod tls;

pub use backend::{AppProtocol, BackendId, Cluster, ClusterId, Endpoints, ServicePort};
pub use certificate::{Certificate, KeyForm, PrivateKey, Secret, SecretName};
pub use condition::{Condition, Reason, Status, clipped};
pub use frontend::{
    CertificateSource, Chain, ChainName, Frontend, FrontendId, FrontendKind, Handler, TLS_CHALLENGES, Termination,
};
pub use hostname::{Hostname, HostnameError};
pub use name::ObjectName;
pub use reached::Reached;
pub use route::{
    Action, Challenges, Cors, Elsewhere, Fraction, HeaderEdits, HeaderMatch, Match, Mirror, PathMatch, PathRewrite,
    QueryMatch, Redirect, Retry, Rewrite, Route, Rule, Scope, StringMatch, Table, TableId, Target, Timeouts,
    VirtualHost, WeightedTarget,
};
pub use tls::{TlsParams, TlsVersion};
