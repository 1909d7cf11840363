//! The keeper's report: results of a pass, and the outlook of each wanted certificate.

use jiff::Timestamp;
use serde::Serialize;

use crate::failure::{Class, Failure};
use crate::issuer::CertificateId;
use crate::names::Names;
use crate::plan::Reason;

/// The results of one pass, and the time of the next.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// Certificates that were issued.
    pub issued: Vec<CertificateId>,
    /// Certificates whose attempt failed.
    pub failed: Vec<(CertificateId, Failure)>,
    /// Certificates that are no longer wanted.
    pub retired: Vec<CertificateId>,
    /// The outlook of each wanted certificate.
    pub outlook: Vec<Outlook>,
    /// Time of the next pass.
    pub next: Option<Timestamp>,
}

/// The state of one wanted certificate, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// The stable name of the wanted certificate.
    pub id: CertificateId,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// Its names.
    pub names: Names,
    /// The issuer.
    pub issuer: String,
    /// Expiry of the certificate that is served, if there is one.
    pub expires: Option<Timestamp>,
    /// The next step.
    pub next: Next,
    /// Time of the next step.
    pub at: Timestamp,
    /// The last error since the last success.
    pub last_error: Option<String>,
    /// Serial number of the certificate that Envoys refused, if that happened since the last
    /// success.
    pub refused: Option<String>,
    /// A notice about its renewal window, if there is one: the CA's explanation, or why the window
    /// is ignored.
    pub notice: Option<String>,
}

/// The next step for a wanted certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Next {
    /// It is being issued, for this reason.
    Issue(Reason),
    /// It waits, for this reason.
    Wait(String),
    /// The last attempt failed with this class; it is retried.
    Retry(Class),
    /// It is held, and will be renewed.
    Renew,
}
