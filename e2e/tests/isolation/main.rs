//! Tenants as adversaries: mallory does what a tenant may do, and alice must not be affected.
//!
//! One file per finding. Every test is black-box: in go manifests, out come requests and statuses,
//! on the real Envoy.

mod access;
mod addresses;
mod certificate_ends;
mod chains;
mod checked_endpoints;
mod class_policies;
mod client_address;
mod compression;
mod cost;
mod dearest;
mod differential;
mod direct_responses;
mod edge;
mod endpoints;
mod external_auth;
mod external_names;
mod files;
mod flood;
mod framing;
mod granted_names;
mod hostile;
mod internal_ca;
mod issuers;
mod known_headers;
mod large_chains;
mod limits;
mod logins;
mod ownership;
mod protocols;
mod rate_limits;
mod refusals;
mod regex;
mod regex_load;
mod request_bodies;
mod response_overrides;
mod rewrites;
mod route_names;
mod secret;
mod secret_names;
mod shared_tables;
mod site;
mod slashes;
mod statuses_of_backends;
mod strict;
mod strings;
mod tenant_names;
mod tokens;
mod told;
mod turns;
mod udp_sessions;
mod users;
mod warming;
mod xbackends;
