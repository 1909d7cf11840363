//! Everything that talks to the API server: watches in, writes out.
//!
//! In: objects of the kinds in [`gatewright_core::inputs::Kind`], slim. Out: statuses and what TenantGateways lead to, by
//! server-side apply, and a Lease. What is written comes back only by being watched. Decisions are pure and sit in files of their own (`view`, `absence`, `secrets`,
//! `status`, `failure`, `queue`); the rest moves bytes.

mod access;
mod ahead;
mod body;
pub mod claims;
mod client;
mod compact_json;
mod conflict_backoff;
mod discovery;
mod exposure;
mod failure;
mod fence;
pub mod issuance;
pub mod keys;
pub mod lease;
pub mod metrics;
mod missing_kinds;
mod observed;
mod peer_watch;
pub mod replicas;
mod request;
mod runtime;
mod secret_refs;
mod services;
mod status;
mod status_writer;
mod storage;
pub mod tenants;
mod watch;
mod watch_sync;
mod watches;
mod work_queue;
mod worker;

pub use access::MetricsReaders;
pub use client::{ClientError, connect};
pub use conflict_backoff::WriteConflictBackoff;
pub use discovery::{DiscoveryError, Served, discover};
pub use failure::Failure;
pub use fence::Fence;
pub use observed::ObservedObject;
pub use runtime::{KINDS, KubernetesRuntime, kinds_without_tenants};
pub use secret_refs::{SecretAction, SecretRefs};
pub use status::{StatusOwner, patch as status_patch};
pub use status_writer::{Done, StatusWriter};
pub use storage::ObjectStorage;
pub use watch::{Lists, ObjectUpdate, WatchEvent, watch};
pub use watch_sync::{State, WatchSync};
pub use watches::run as watch_all;
pub use work_queue::WorkQueue;

/// The name that our fields carry in `metadata.managedFields`.
pub const FIELD_MANAGER: &str = "gatewright";
