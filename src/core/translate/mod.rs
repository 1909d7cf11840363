//! Translation: from the objects we have seen to what Envoy is to serve and what each object's status says.
//!
//! In: [`Change`]s. Out: a [`Delta`] of [`Resource`]s and [`ObjectStatus`]es, with work proportional to the change.
//! Nothing here does I/O, keeps time or logs: the time is an argument.

mod admission;
mod allowed_hostnames;
mod assembly;
mod attach;
mod attachments;
mod backend_policies;
mod backends;
mod bind;
mod blame;
mod ca_bundles;
mod certificate;
mod chain_class;
mod challenge;
mod claims;
mod client_certificate;
mod client_validation;
mod compile;
#[cfg(test)]
mod confluence;
mod counters;
mod deadline;
mod delta;
mod denied;
mod dirty;
mod document;
mod emissions;
mod endpoints;
mod engine;
mod evaluate;
mod experimental;
mod explain;
mod exposure;
mod exposures;
mod features;
mod fleet;
mod frontend_state;
mod frontends;
mod grants;
mod issuance;
mod key;
mod limits;
mod owners;
mod ownership;
mod parent;
mod parents;
mod policy;
mod policy_status;
mod precedence;
mod quota;
mod report;
mod resolve;
mod routes;
mod sans;
mod secret_names;
mod settings;
mod settle;
mod slashes;
mod sni_matcher;
mod solver;
mod spoken;
mod status;
mod statuses;
mod tables;
mod tls_options;
mod wanted_index;

pub use blame::Blame;
pub use certificate::Served;
pub use challenge::{Asked, ChallengeAnswer};
pub use claims::Family;
pub use client_certificate::ClientCertificate;
pub use counters::Counters;
pub use delta::{Change, Delta, Fact, Resource, ResourceKey};
pub use denied::EndpointPolicy;
pub use document::{parent_ref, status_document};
pub use engine::Engine;
pub use explain::{Explanation, Host, Link, Question};
pub use exposure::{DesiredService, ServiceIntent};
pub use fleet::{Fleet, GatewayExposure, Precedence};
pub use grants::Grants;
pub use key::{ListenerId, ParentKey, RouteKey, Verdict};
pub use ownership::{ListenersOf, Ownable, Ownership, Recording};
pub use parent::{Parent, ParentListener, Protocol};
pub use policy::{IssuerAllow, IssuerPolicy, IssuerRule, Unlisted};
pub use settings::{DedicatedEnvoys, SYSTEM_ROOTS, Settings};
pub use status::{
    ClassStatus, GatewayStatus, ListenerSetStatus, ListenerStatus, ObjectStatus, PolicyStatus, RouteStatus, StatusBody,
};
pub use tls_options::{ISSUER, OPTIONS as TLS_OPTIONS, SELF_SIGNED, VALUES as TLS_VALUES};
