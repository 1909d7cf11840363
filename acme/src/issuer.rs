//! What gives certificates: an ACME account, the internal CA, or an ordered list of them.

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
/// Letters, digits, `.`, `-` and `_`, so that it can be a file name and a Kubernetes object name's part.
/// Copies share the text.
#[derive(Clone, Debug, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[allow(clippy::derived_hash_with_manual_eq, reason = "equal texts are equal, shared or not")]
pub struct CertificateId(Arc<str>);

impl PartialEq for CertificateId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl CertificateId {
    /// Takes a text that is already a stable name.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let fits = !text.is_empty()
            && text.len() <= 200
            && !text.starts_with('.')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
        if fits { Ok(Self(text.into())) } else { Err(InvalidId(text.chars().take(200).collect())) }
    }

    /// The name for a certificate of `tenant` with these names: the first name, and a digest that keeps tenants
    /// and other sets with the same first name apart.
    pub fn of(tenant: &str, names: &Names) -> Self {
        use sha2::{Digest, Sha256};
        let mut hash = Sha256::new();
        hash.update(tenant.as_bytes());
        for name in names.iter() {
            hash.update([0]);
            hash.update(name.as_str().as_bytes());
        }
        let digest: String = hash.finalize()[..6].iter().map(|b| format!("{b:02x}")).collect();
        let first: String = names.first().as_str().replace('*', "wildcard").chars().take(180).collect();
        Self(format!("{first}-{digest}").into())
    }

    /// As text.
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

/// A text that cannot name a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot name a certificate: expected 1 to 200 letters, digits, `.`, `-`, `_`, not beginning with `.`")]
pub struct InvalidId(String);

/// What is asked of an [`Issuer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueRequest {
    /// Names everything persisted on the way.
    pub id: CertificateId,
    /// For whom it is; empty where nobody said.
    pub tenant: String,
    /// Names of the certificate.
    pub names: Names,
    /// How long it should live; an ACME CA decides that by its profile instead.
    pub validity: Option<SignedDuration>,
    /// ARI identifier of the certificate it replaces (RFC 9773, 5), where it shares a name with it.
    pub replaces: Option<String>,
    /// What the order does not count against.
    pub exempt: Exempt,
    /// Attempts that failed before this one.
    pub failures: u32,
    /// What this installation would call "now".
    pub now: Timestamp,
}

impl IssueRequest {
    /// A first certificate for these names.
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

/// What a keeper knows, for [`Issuer::tidy`].
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Serial numbers of the certificates that are stored.
    pub stored: BTreeMap<CertificateId, String>,
    /// What is wanted, or being got.
    pub wanted: BTreeSet<CertificateId>,
}

/// An order that was counted against the budget and came to no end yet: to take it up again costs nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underway {
    /// The certificate it is for.
    pub id: CertificateId,
    /// Its names.
    pub names: Names,
    /// The CA has it.
    pub placed: bool,
}

/// Gives certificates. Dropping the future of [`Issuer::issue`] loses nothing: a repeated call resumes.
#[async_trait]
pub trait Issuer: Send + Sync {
    /// The name it has in configuration, messages and metrics.
    fn name(&self) -> &str;

    /// Gets one certificate, verified: right key, exactly the names asked for, valid now, chain in order.
    async fn issue(&self, request: &IssueRequest) -> Result<IssuedCertificate, Failure>;

    /// The certificate is stored: what was kept to get it again may go.
    async fn installed(&self, _id: &CertificateId) -> Result<(), Failure> {
        Ok(())
    }

    /// Nobody wants the certificate any more: an order on its way is given up, and its traces are removed.
    async fn abandon(&self, _id: &CertificateId) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes away what earlier attempts left behind: orders whose certificate is stored already, records in DNS that
    /// could not be removed at the time, orders of long ago that nobody wants any more.
    async fn tidy(&self, _known: &Known, _now: Timestamp) -> Result<(), Failure> {
        Ok(())
    }

    /// Entries that could not be used, as sentences for an operator.
    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    /// Orders that can be taken up again.
    fn underway(&self) -> Vec<Underway> {
        Vec::new()
    }

    /// What is left of its limits, as far as they hold orders up; `None` where none does.
    fn budget(&self) -> Option<Budget> {
        None
    }

    /// What is left of its limits, for people; `None` where there are none.
    fn limits(&self) -> Option<Budget> {
        self.budget()
    }

    /// The CA's request for the renewal of a certificate (RFC 9773); `None` where it has none.
    async fn renewal_window(
        &self,
        _held: &IssuedCertificate,
        _previous: Option<&Window>,
        _now: Timestamp,
    ) -> Result<Option<Window>, Failure> {
        Ok(None)
    }
}
