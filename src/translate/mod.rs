//! Translation: from the objects we have seen to what Envoy is to serve and what each object's status says.
//!
//! In: [`Change`]s. Out: a [`Delta`] of [`Resource`]s and [`ObjectStatus`]es, with work proportional to the change.
//! Nothing here does I/O, keeps time or logs: the time is an argument.

mod attach;
mod blame;
mod certificate;
mod challenge;
mod claims;
mod compile;
#[cfg(test)]
mod confluence;
mod deadline;
mod delta;
mod document;
mod emit;
mod engine;
mod explain;
mod frontend_state;
mod gate;
mod index;
mod key;
mod parent;
mod precedence;
mod re2;
mod report;
mod resolve;
mod sans;
mod status;
mod tables;
mod tls_options;
mod wishes;

pub use blame::Blame;
pub use certificate::{Served, Wish};
pub use challenge::ChallengeAnswer;
pub use delta::{Change, Delta, Resource, ResourceKey};
pub use document::{parent_ref, status_document};
pub use engine::{Counters, Engine, Settings};
pub use explain::{Explanation, Host, Link, Question};
pub(crate) use index::Index;
pub use key::{ListenerId, ParentKey, RouteKey, Verdict};
pub use parent::{Parent, ParentListener, Protocol};
pub use status::{GatewayStatus, ListenerSetStatus, ListenerStatus, ObjectStatus, RouteStatus, StatusBody};
pub use tls_options::{INTERNAL_CA, ISSUER};
