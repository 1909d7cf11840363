//! Everything that talks to the API server: watches in, writes out.
//!
//! In: objects of the kinds in [`crate::inputs::Kind`], slim. Out: statuses and what TenantGateways lead to, by
//! server-side apply, and a Lease. What is written comes back only by being watched. Decisions are pure and sit in files of their own (`view`, `absence`, `secrets`,
//! `status`, `failure`, `queue`); the rest moves bytes.

mod absence;
mod body;
pub mod claims;
mod client;
mod cluster;
mod damper;
mod discovery;
mod exposure;
mod failure;
mod fence;
mod figures;
mod follow;
pub mod issuance;
pub mod keys;
pub mod lease;
mod queue;
pub mod replicas;
mod request;
mod secrets;
mod seen;
mod services;
mod status;
mod storage;
pub mod tenants;
mod terse;
mod view;
mod watch;
mod watches;
mod writer;

pub use client::{ClientError, connect};
pub use cluster::{Cluster, KINDS, kinds_without_tenants};
pub use damper::Damper;
pub use discovery::{DiscoveryError, Served, discover};
pub use failure::Failure;
pub use fence::Fence;
pub use queue::Queue;
pub use secrets::{Secrets, Step};
pub use seen::Seen;
pub use status::{Us, patch as status_patch};
pub use storage::ObjectStorage;
pub use view::{State, View};
pub use watch::{Lists, News, Update, watch};
pub use watches::run as watch_all;
pub use writer::{Done, Writer};

/// The name that our fields carry in `metadata.managedFields`.
pub const FIELD_MANAGER: &str = "gatewright";
