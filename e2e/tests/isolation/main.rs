//! Tenants as adversaries of each other: mallory does what a tenant may do, and alice must not notice.
//!
//! One file per finding. Every test is black-box: manifests in, requests and statuses out, on the real Envoy.

mod ownership;
mod refusals;
mod site;
mod strict;
