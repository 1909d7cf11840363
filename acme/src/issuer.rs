//! The interface of certificate issuers: an ACME account, the internal CA, or an ordered list of
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::budget::{Budget, Exempt};
use crate::certificate::IssuedCertificate;
use crate::failure::Failure;
use crate::names::Names;
use crate::renewal::Window;

/// A stable name of a certificate: the key of everything persisted about it.
///
/// Letters, digits, `.`, `-` and `_`, so that it can be a file name and a Kubernetes object name's
/// part. Copies share the text.
#[derive(Clone, Debug, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[allow(
    clippy::derived_hash_with_manual_eq,
    reason = "equal texts are equal, shared or not"
)]
pub struct CertificateId(Arc<str>);

impl PartialEq for CertificateId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl CertificateId {
    /// Parses a text that is a stable name already.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let fits = !text.is_empty()
            && text.len() <= 200
            && !text.starts_with('.')
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(InvalidId(text.chars().take(200).collect()))
        }
    }

    /// Makes the name for a certificate of `tenant` with these names: the first name, and a digest
    /// that distinguishes tenants and other sets with the same first name.
    pub fn of(tenant: &str, names: &Names) -> Self {
        use sha2::{Digest, Sha256};
        let mut hash = Sha256::new();
        hash.update(tenant.as_bytes());
        for name in names.iter() {
            hash.update([0]);
            hash.update(name.as_str().as_bytes());
        }
        let digest: String = hash.finalize()[..6]
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let first: String = names
            .first()
            .as_str()
            .replace('*', "wildcard")
            .chars()
            .take(180)
            .collect();
        Self(format!("{first}-{digest}").into())
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for CertificateId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for CertificateId {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        Self::parse(&text)
    }
}

impl From<CertificateId> for String {
    fn from(id: CertificateId) -> Self {
        id.0.as_ref().to_owned()
    }
}

/// The text is not valid as the name of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot name a certificate: expected 1 to 200 letters, digits, `.`, `-`, `_`, not beginning with `.`"
)]
pub struct InvalidId(String);

/// A request to an [`Issuer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueRequest {
    /// Key of everything that is persisted about the certificate.
    pub id: CertificateId,
    /// The tenant that the certificate is for; empty where none is given.
    pub tenant: String,
    /// Names of the certificate.
    pub names: Names,
    /// Validity of the certificate; an ACME CA ignores it and decides by its profile.
    pub validity: Option<SignedDuration>,
    /// ARI identifier of the certificate that it replaces (RFC 9773, 5), where they share a name.
    pub replaces: Option<String>,
    /// The limits that the order is exempt from.
    pub exempt: Exempt,
    /// Number of failed attempts before this one.
    pub failures: u32,
    /// Current time.
    pub now: Timestamp,
}

impl IssueRequest {
    /// Makes a request for a first certificate for these names.
    pub fn new(id: CertificateId, names: Names, now: Timestamp) -> Self {
        Self {
            id,
            tenant: String::new(),
            names,
            validity: None,
            replaces: None,
            exempt: Exempt::Nothing,
            failures: 0,
            now,
        }
    }
}

/// The certificates that a keeper knows, for [`Issuer::tidy`].
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Serial numbers of the certificates that are stored.
    pub stored: BTreeMap<CertificateId, String>,
    /// Certificates that are wanted, or that jobs are issuing.
    pub wanted: BTreeSet<CertificateId>,
}

/// An order that the budget has counted and that has not ended: resuming it spends nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underway {
    /// The certificate that it is for.
    pub id: CertificateId,
    /// Its names.
    pub names: Names,
    /// True if the order was placed at the CA.
    pub placed: bool,
}

/// An issuer of certificates. Dropping the future of [`Issuer::issue`] loses nothing: the next call
/// resumes.
#[async_trait]
pub trait Issuer: Send + Sync {
    /// Returns its name in configuration, messages and metrics.
    fn name(&self) -> &str;

    /// Issues one certificate and verifies it: right key, exactly the requested names, not expired,
    /// chain in order.
    async fn issue(&self, request: &IssueRequest) -> Result<IssuedCertificate, Failure>;

    /// Tells the issuer that the certificate is stored: the order's record may be removed.
    async fn installed(&self, _id: &CertificateId) -> Result<(), Failure> {
        Ok(())
    }

    /// Abandons the order for a certificate that is no longer wanted, and removes its DNS records.
    async fn abandon(&self, _id: &CertificateId) -> Result<(), Failure> {
        Ok(())
    }

    /// Removes leftovers of earlier attempts: orders whose certificate is stored already, DNS
    /// records that could not be removed at the time, old orders that are no longer wanted.
    async fn tidy(&self, _known: &Known, _now: Timestamp) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns problems with stored entries that could not be used, as sentences for an operator.
    fn storage_problems(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the orders that can be resumed.
    fn underway(&self) -> Vec<Underway> {
        Vec::new()
    }

    /// Returns the budget, if it holds orders up; `None` where no limit does.
    fn budget(&self) -> Option<Budget> {
        None
    }

    /// Returns the budget for people to read; `None` where there are no limits.
    fn limits(&self) -> Option<Budget> {
        self.budget()
    }

    /// Returns the CA's renewal window of a certificate (ARI, RFC 9773); `None` where the CA has
    /// none.
    async fn renewal_window(
        &self,
        _held: &IssuedCertificate,
        _previous: Option<&Window>,
        _now: Timestamp,
    ) -> Result<Option<Window>, Failure> {
        Ok(None)
    }
}
