//! What a keeper tells: what it did, and how each wanted certificate stands.

use jiff::Timestamp;
use serde::Serialize;

use crate::failure::{Class, Failure};
use crate::issuer::CertificateId;
use crate::names::Names;
use crate::plan::Reason;

/// What one pass did, and what comes next.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// Certificates that are new.
    pub issued: Vec<CertificateId>,
    /// What did not work.
    pub failed: Vec<(CertificateId, Failure)>,
    /// Certificates nobody wants any more.
    pub retired: Vec<CertificateId>,
    /// How each wanted certificate stands.
    pub outlook: Vec<Outlook>,
    /// When the next pass is due.
    pub next: Option<Timestamp>,
}

/// How one wanted certificate stands, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// The wanted certificate.
    pub id: CertificateId,
    /// Whose it is.
    pub tenant: String,
    /// Its names.
    pub names: Names,
    /// The issuer.
    pub issuer: String,
    /// End of the certificate that is served, if there is one.
    pub expires: Option<Timestamp>,
    /// What happens next.
    pub next: Next,
    /// When.
    pub at: Timestamp,
    /// The last error since the last success.
    pub last_error: Option<String>,
    /// What the CA says about the time of its renewal, where there is more to tell than when that is.
    pub notice: Option<String>,
}

/// What happens next to a wanted certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Next {
    /// It is being got.
    Issue(Reason),
    /// It waits for something.
    Wait(String),
    /// The last attempt failed; another one follows.
    Retry(Class),
    /// It will be renewed.
    Renew,
}
