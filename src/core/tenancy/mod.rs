//! Tenancy: from TenantGateways, namespaces and routes to Gateway API objects, certificates and
//! verdicts on hostnames.
//!
//! In: [`Change`]s. Out: a [`Delta`] of desired objects and statuses. Nothing here does I/O or
//! reads the clock. Rules and names are those of the Cozystack gateway page;
//! `docs/migrate.md` lists our differences.

mod admit;
mod arrange;
mod carry_out;
mod children;
mod claim;
mod claims;
mod compile;
#[cfg(test)]
mod confluence;
mod delta;
mod derivations;
mod desired;
mod dirty;
mod engine;
mod evaluate;
mod explain;
mod groups;
mod host;
mod hosts;
mod issuer;
mod judge;
mod label;
pub mod names;
mod namespaces;
mod observe;
mod other_data_plane;
mod ownership;
mod parent_refs;
mod placement;
mod places;
mod provided_secret;
mod provided_secrets;
mod record;
mod render;
#[cfg(test)]
mod repaired;
mod report;
mod selection;
mod settings;
mod solver;
mod solving;
mod status;
mod tenants;
#[cfg(test)]
mod unmanaged;
mod work_list;

pub use crate::inputs::{Mode, Source, TenantGateway};
pub(crate) use claim::tenant_of;
pub use claim::{ClaimKey, ClaimKind, Claimant};
pub use delta::{
    Change, Delta, Derived, DerivedKind, Existing, Fact, Namespace, Patch, Readiness, Verdict,
};
pub use desired::Desired;
pub use engine::{Counters, Tenancy};
pub use explain::OwnershipExplanation;
pub use names::{ATTACHED_BY, GATEWAY_LABEL};
pub use provided_secret::{ProvidedSecret, secret_of};
pub use render::HOST_LABEL;
pub use settings::{Ports, Settings, SolverService};
pub use status::{CONTROLLER, ListenerState, Listening, ParentState, TenantStatus};
