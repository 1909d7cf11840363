//! Translates our model into Envoy v3 resources.
//!
//! In: [`gatewright_core::model`]. Out: protobuf messages of `envoy-types`, a bootstrap, and both
//! as readable text ([`render`]). Pure: no client, task, clock or log ever appears here.
//!
//! The layout keeps a constant number of filter chains and looks up everything per host by name:
//! the certificate by SNI (`on_demand_secret`), the routes by host (scoped routes), the chain by
//! SNI (a domain matcher in the Listener).
//!
//! Protobuf maps of `envoy-types` are `HashMap`s, whose encoding is not stable from two entries on.
//! Maps made here have one entry, or iterate in the order of their keys (`proto.rs`), so equal
//! values encode to equal bytes.

mod access_log;
mod admin_listener;
mod alternative_service;
mod authority;
mod backend_settings;
mod bind_error;
mod bootstrap;
mod cel;
mod chain;
mod client_address;
mod cluster;
mod connection_limit;
mod connection_manager;
mod constraints;
mod cors;
mod credentials;
mod descriptors;
mod direct_response;
mod domain;
mod edge;
mod external_auth;
mod failure_log;
mod failure_report;
mod fetched_keys;
mod find_scope;
mod headers;
mod http3;
mod identity_headers;
mod internal_headers;
mod ip_matcher;
mod limits;
mod listener;
mod listener_filters;
mod location;
mod log_filter;
mod log_format;
mod login_rate;
mod misdirected;
mod name;
mod otlp;
mod path;
mod plain_http;
mod predicate;
mod preflight;
mod proto;
mod rbac;
mod render;
mod request_hash;
mod request_match;
mod required_claims;
mod retry;
mod route;
mod route_filters;
mod scope;
mod secret;
mod session;
mod session_size;
mod settings;
mod shared_filters;
mod sni_matcher;
mod statistics;
mod table;
mod traffic;
mod udp;
mod udp_sessions;
mod upstream_script;
mod upstream_tls;
mod utf8;
mod virtual_host;
mod websocket;
mod zone_preference;

#[cfg(test)]
mod testdata;
mod traces;

pub use bind_error::{BindError, is_bind_error};
pub use bootstrap::{
    Admin, AdsServer, BootstrapOptions, MutualTls, bootstrap, bootstrap_with_static, keys_files,
};
pub use cluster::{REFUSED, cluster, cluster_within, endpoints};
pub use connection_limit::ConnectionLimit;
pub use constraints::check;
pub use domain::{DomainMatcher, ServerNameMatcher};
pub use edge::Edge;
pub use external_auth::check_request;
pub use failure_report::{EndpointLoad, FailedHandshake, Report, ReportedFailure, loads, reports};
pub use ip_matcher::{IpMatcher, IpRangeMatcher};
pub use listener::{listener, listener_within};
pub use name::ResourceName;
pub use plain_http::wide_hosts;
pub use render::{RenderError, render, render_any};
pub use scope::{scope, scope_within};
pub use secret::{client_roots, generic, secret, ticket_keys};
pub use statistics::{ShownStatistics, Statistics, StatisticsReader};
pub use table::{table, table_within};
pub use traffic::TrafficMetrics;
pub use udp_sessions::UdpSessions;
