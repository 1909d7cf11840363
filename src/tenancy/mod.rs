//! Tenancy: from TenantGateways, namespaces and routes to Gateway API objects, certificates and verdicts on hostnames.
//!
//! In: [`Change`]s. Out: a [`Delta`] of desired objects and statuses. Nothing here reads, writes or knows the time.
//! Rules and names are those of the Cozystack gateway page; `docs/compatibility.md` lists where we differ, and why.

mod admit;
mod beside;
mod brought;
mod claim;
mod claims;
mod compile;
#[cfg(test)]
mod confluence;
mod delta;
mod desired;
mod engine;
mod evaluate;
mod explain;
#[cfg(test)]
mod found;
mod groups;
mod held;
mod issuer;
pub mod names;
mod place;
mod reach;
mod record;
mod render;
mod report;
mod settle;
mod solver;
mod status;
mod todo;
mod wish;

pub use crate::inputs::{Mode, Source, TenantGateway};
pub use brought::Brought;
pub(crate) use brought::secret_of;
pub(crate) use claim::tenant_of;
pub use claim::{ClaimKey, ClaimKind, Claimant};
pub use delta::{
    Change, Delta, Derived, DerivedKind, Existing, Namespace, Patch, Ports, Precedence, Readiness, Record, Settings,
    SolverService, Verdict,
};
pub use desired::Desired;
pub use engine::{Counters, Tenancy};
pub use explain::Ownership;
pub use render::{ATTACHED_BY, GATEWAY_LABEL, HOST_LABEL};
pub use status::{CONTROLLER, ListenerState, Listening, ParentState, TenantStatus};
pub use wish::{AcmeIssuer, Issuer, Provider, Solver, Wish};
