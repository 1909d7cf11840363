//! ReportRequests: what only the running program knows, asked for through the API server.
//!
//! In: objects of the kind, which anybody with the right creates in a namespace. Out: the answer in
//! the status of each, by the lease holder, and the removal of the object a minute later. An object
//! of a namespace gets what is of that namespace; one of the installation's own gets everything.
//! Nothing of an object reaches the engines.
//!
//! ```text
//! API server ==watch==> requests: turns, pace ==> sources: control plane, certificate manager, logs of Envoys
//!      ^                                                  |
//!      +== status, removal =============== visibility <===+
//! ```
//!
//! The number of objects, the pace and the size of answers are bounded for each namespace, and
//! namespaces take turns: no namespace slows the answers of others
//! (docs/decisions/041-reports-by-an-object.md).

mod envoy_logs;
mod metrics;
mod pace;
mod part;
mod reporter;
mod request;
mod requests;
mod sources;

pub use metrics::described;
pub use reporter::{ReportCounts, Reporter};
pub use request::{
    REPORT_REQUEST_CRD, ReportKind, ReportOutcome, ReportRequest, ReportSpec, ReportStatus,
    report_resource,
};
