//! Tenancy: from TenantGateways, namespaces and routes to Gateway API objects, certificates and verdicts on hostnames.
//!
//! In: [`Change`]s. Out: a [`Delta`] of desired objects and statuses. Nothing here reads, writes or knows the time.
//! Rules and names are those of the Cozystack gateway page; `docs/compatibility.md` lists where we differ, and why.

mod claim;
#[cfg(test)]
mod confluence;
mod delta;
mod engine;
pub mod names;
mod render;
mod report;
mod settle;
mod tenant_gateway;

pub use claim::{ClaimKey, ClaimKind, Claimant};
pub use delta::{Change, Delta, Derived, DerivedKind, Existing, Namespace, Patch, Readiness, Settings, Verdict};
pub use engine::{Counters, Tenancy};
pub use render::{ATTACHED_BY, GATEWAY_LABEL, HOST_LABEL};
pub use tenant_gateway::{
    CRD, Cloudflare, DIRECTORY, DigitalOcean, Dns01, ISSUER, Invalid, LocalObject, Mode, Rfc2136, Route53, SecretKey,
    Spec, TenantGateway,
};
