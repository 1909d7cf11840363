//! All communication with the API server: watches in, writes out.
//!
//! In: objects of the kinds in [`gatewright_core::inputs::Kind`], slim. Out: statuses and the
//! derived objects of TenantGateways, by server-side apply, and a Lease. A write is known only once
//! it is watched. Decisions are pure and in files of their own (`watch/sync.rs`, `secrets/refs.rs`,
//! `expose/plan.rs`, `write/status.rs`, ...; `tests/tidy.rs` has the list); the rest does input and
//! output.
//!
//! ```text
//! API server ==reader==> commands of a person
//! API server ==reports==> answers to ReportRequests ==> API server
//! API server ==watch, secrets==> runtime ==> write, tenants, expose, issuance, claims, replicas ==> API server
//! ```

use std::time::Duration;

mod access;
mod adoption;
mod ahead;
pub mod backup;
pub mod claims;
mod class_finalizers;
mod client;
mod compact_json;
pub mod crds;
mod defaults;
mod deviation;
mod expose;
mod format;
pub mod isolated;
pub mod issuance;
pub mod keys;
pub mod lease;
mod live_object;
mod managed_fields;
pub mod metrics;
pub mod reader;
pub mod replicas;
pub mod reports;
mod runtime;
mod secrets;
mod storage;
pub mod tenants;
mod watch;
mod write;

pub use access::MetricsReaders;
pub use client::{ClientError, connect, connect_as_user};
pub use live_object::{LiveObject, derived};
pub use runtime::KubernetesRuntime;
pub use secrets::refs::{BodyAction, BodyRefs};
pub use storage::ObjectStorage;
pub use watch::definitions::{ServedDefinitions, run as watch_definitions};
pub use watch::discovery::{DiscoveryError, Served, discover};
pub use watch::kinds::run as watch_all;
pub use watch::last_heard::LastHeard;
pub use watch::observed::ObservedObject;
pub use watch::scope::AccessSecret;
pub use watch::sync::{State, WatchSync};
pub use watch::{ObjectUpdate, WatchEvent};
pub use write::conflict_backoff::WriteConflictBackoff;
pub use write::failure::Failure;
pub use write::fence::Fence;
pub use write::status::{StatusOwner, patch as status_patch};
pub use write::status_writer::{Done, StatusWriter};
pub use write::work_queue::WorkQueue;

/// The field manager of our writes in `metadata.managedFields`.
pub const FIELD_MANAGER: &str = "gatewright";

/// The timeout of one request. A write has less towards the end of a term, see [`Fence`].
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
