//! Tenancy: from TenantGateways, namespaces and routes to Gateway API objects, certificates and
//! verdicts on hostnames.
//!
//! In: [`Change`]s. Out: a [`Delta`] of desired objects and statuses. Nothing here does I/O or
//! reads the clock. Rules and names are those of the Cozystack gateway page;
//! `docs/migrate.md` lists our differences.

#[cfg(test)]
mod confluence;
mod delta;
mod engine;
mod explain;
#[cfg(test)]
mod repaired;
mod rule;
mod settings;
mod stage;
mod state;
#[cfg(test)]
mod unmanaged;

pub use delta::{
    Change, Delta, Derived, DerivedKind, Existing, Fact, Namespace, Patch, Readiness, Verdict,
};
pub use engine::{Counters, Tenancy};
pub use explain::OwnershipExplanation;
pub use gatewright_objects::inputs::{Mode, Source, TenantGateway};
pub use rule::claim::tenant_of;
pub use rule::claim::{ClaimKey, ClaimKind, Claimant};
pub use rule::desired::Desired;
pub use rule::names;
pub use rule::names::{ATTACHED_BY, GATEWAY_LABEL};
pub use rule::provided_secret::{ProvidedSecret, secret_of};
pub use rule::render::HOST_LABEL;
pub use settings::{Ports, Settings, SolverService};
pub use stage::status::{CONTROLLER, ListenerState, Listening, ParentState, TenantStatus};
