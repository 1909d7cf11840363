//! The control plane of both runtimes: takes in changes from a directory or the API server, and
//! returns resources for Envoys, statuses and certificates.
//!
//! ```text
//! changes ==> ControlPlane ==> publish ==> xds::Cache ==> Envoys
//!              ^  └══> certificates ==> acme         │ acknowledged, refused
//!              └═════════════ programmed <═══════════┘
//! ```
//!
//! It depends on Envoy and ACME, and neither on Kubernetes nor on directories.

mod admin;
mod admin_query;
mod authorization_check;
mod bounded_listener;
mod by_owner;
pub mod certificates;
mod control_plane;
pub mod envoy_access;
mod envoy_certificate_answers;
pub mod envoy_certificates;
pub mod envoy_identity;
pub mod envoys;
pub mod event;
mod failed_handshakes;
mod failure_reports;
pub mod fleet_views;
mod flood;
pub mod heartbeat;
pub mod history;
mod host_query;
pub mod host_watch;
mod in_order;
mod lag;
mod last_failures;
pub mod metrics;
pub mod names;
mod overtaken;
mod probes;
pub mod programmed;
pub mod propagation;
pub mod publish;
pub mod request_line;
pub mod server_tls;
mod status_query;
pub mod tasks;
mod tenants;
pub mod ticket_rotation;
mod visibility;

pub use admin::{AdminError, AdminQuery, AdminRequest, AskedUrl, ask, serve as serve_admin, tell};
pub use admin_query::path_with;
pub use control_plane::{ControlPlane, Effects, owner_rows};
pub use failed_handshakes::HostHandshakes;
pub use failure_reports::FailureReports;
pub use host_query::{HostQuery, HostRevisions, HostsAnswer, HostsChange};
pub use in_order::in_order;
pub use probes::{Probes, ProbesTls, ReadMetrics, Readiness, Verdict};
pub use status_query::{Form, StatusAnswer, StatusQuery};
pub use tenants::{explain as explain_tenants, losers, tenants};
pub use visibility::Visibility;
