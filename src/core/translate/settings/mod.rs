//! The settings of policies on Gateways, ListenerSets and routes, each in a file of its name: may
//! it be, and what `explain` says of it. Pure.
//!
//! In: settings as read, and the objects that they refer to. Out: what requests get. What settings
//! are there, and how those of several policies go together, says the list in
//! `gatewright_objects::settings`.

mod authorization;
mod bandwidth_limit;
mod basic_auth;
mod client_address;
mod compression;
mod explained;
mod external_auth;
mod headers;
mod judging;
mod jwt;
mod oidc;
mod rate_limit;
mod request_body;
mod response_override;
mod rewrite;

pub(crate) use explained::{Denial, ExplainedAccess, ExplainedTraffic};
pub(crate) use judging::judged;
