//! The kind ReportRequest, as its definition in `deploy/crds` has it.

use jiff::Timestamp;
use kube::api::ApiResource;
use kube::core::{GroupVersionKind, Object};
use serde::{Deserialize, Serialize};

/// The custom resource definition.
pub const REPORT_REQUEST_CRD: &str =
    include_str!("../../../deploy/crds/gatewright.io_reportrequests.yaml");

/// A request for a report. Its answer is the status.
pub type ReportRequest = Object<ReportSpec, ReportStatus>;

/// Returns the API resource of the kind.
pub fn report_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("gatewright.io", "v1alpha1", "ReportRequest");
    ApiResource::from_gvk(&kind)
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportSpec {
    /// The report.
    pub report: ReportKind,
    /// The namespace of the installation that is asked.
    pub installation: String,
    /// A hostname, or an object as `KIND/NAME`: only what concerns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// A namespace: only what is of it. Of use in the installation's namespace alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The earliest time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The latest time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Of logs, true for requests that failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub errors: bool,
    /// Of logs, the maximum number of lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<usize>,
    /// Of logs, the place up to which an earlier answer went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Another number asks anew.
    #[serde(default)]
    pub attempt: u32,
}

impl ReportSpec {
    /// Creates a request for a whole report.
    pub fn new(report: ReportKind, installation: &str) -> Self {
        Self {
            report,
            installation: installation.to_owned(),
            about: None,
            namespace: None,
            since: None,
            until: None,
            errors: false,
            lines: None,
            after: None,
            attempt: 0,
        }
    }
}

/// A report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportKind {
    /// What changed, when, by whom, and how long Envoys took.
    History,
    /// The certificates, with next steps and limits of the CA.
    Certificates,
    /// The owners of hostnames.
    Claims,
    /// The access log of Envoys.
    Logs,
    /// The connected Envoys.
    Envoys,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportStatus {
    /// The generation of the object that is answered.
    pub observed_generation: Option<i64>,
    /// How the request ended.
    pub outcome: ReportOutcome,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The time after which the request may be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
    /// The replica that answered.
    pub answered_by: String,
    /// The time of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<Timestamp>,
    /// The report as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The number of items that the answer has no room for.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted: usize,
    /// Of logs, the place up to which the answer goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportOutcome {
    /// It is answered.
    Answered,
    /// Its namespace has asked too often.
    RateLimited,
    /// What is asked for cannot be had now.
    #[default]
    Unavailable,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
